"""Advice on a threshold, and the contract recomputed from the records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros import cli
from crbo_ros.bench.contract import FunctionTask, Liar
from crbo_ros.bench.in_process import run_in_process
from crbo_ros.commands.advise import advice


def test_the_advised_threshold_is_one_that_theta_0_keeps() -> None:
    values = np.random.default_rng(0).normal(10.0, 1.2, 20)
    said = "\n".join(advice(values, "20 rollouts"))
    drop = float(said.split("advice      j_min_drop: ")[1].split()[0])
    assert drop == 0.3
    assert np.all(values >= 10.0 * (1.0 - drop))
    fallen = int(np.sum(values < np.mean(values) * 0.9))
    assert f"{fallen} of 20" in said
    assert said.count("which is more than the risk of 5 %: refused") == sum(
        int(np.sum(values < np.mean(values) * (1.0 - d))) > 1 for d in (0.05, 0.1, 0.2)
    )
    assert "0 of 20 (its rate is below 14 %, with 95 % confidence)" in said


def test_noise_that_is_larger_than_any_drop_gets_an_absolute_threshold() -> None:
    said = "\n".join(advice(np.array([-5.0, 5.0, 0.1, -0.1]), "4 rollouts"))
    assert "advice      j_min: -" in said
    assert "4 returns say little" in said


def test_advice_runs_theta_0_of_a_simulated_task_and_moves_no_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "pendulum", "--rollouts", "4"]) == 0
    assert "4 returns: 4 rollouts on" in capsys.readouterr().out
    assert cli.main(["advise", "furuta", "--plant", "qube_pal"]) == 1
    assert "is hardware, which moves only under a safety monitor" in capsys.readouterr().err


def test_the_contract_of_a_lying_optimizer_is_kept_and_can_be_recomputed_from_the_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task: Any = FunctionTask(3, cliffs=True)
    terms = {"risk": 0.1, "j_min_drop": 0.5, "budget": 40}
    run = run_in_process(
        task, tmp_path, episodes=40, seed=1, method="liar", terms=terms,
        make=lambda settings: Liar(task.space, task.theta_0, seed=1),
    )  # fmt: skip
    contract = run.contract
    assert 1 <= contract.novel_violations <= 4
    assert contract.executed == 40
    assert cli.main(["inspect", str(tmp_path), "--contract"]) == 0
    out = capsys.readouterr().out
    assert "kept: of 40 rollouts a share of 10.0 % may be new policies that fall: at most 4" in out
    assert f"violations  {contract.violations}, of them {contract.novel_violations} by new policies" in out
    assert "the safety monitor's records" in out
    assert cli.main(["advise", str(tmp_path)]) == 0
    assert "returns: the records of" in capsys.readouterr().out
    (tmp_path / "monitor.sqlite").unlink()
    assert cli.main(["inspect", str(tmp_path), "--contract"]) == 0
    assert "none: no threshold was agreed" in capsys.readouterr().out


def test_the_optimizers_records_tell_the_same_contract_where_the_monitors_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = {"risk": 0.1, "j_min_drop": 0.5, "budget": 15}
    run = run_in_process(
        FunctionTask(3, cliffs=True), tmp_path, episodes=15, seed=1, terms=terms, settings={"gamma": 0.9, **terms}
    )
    said = []
    for _ in range(2):
        assert cli.main(["inspect", str(tmp_path), "--contract"]) == 0
        said.append(capsys.readouterr().out.splitlines()[:5])
        (tmp_path / "monitor.sqlite").unlink(missing_ok=True)
    assert said[0] == said[1]
    assert cli.main(["inspect", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["proposals"]) >= run.contract.executed
