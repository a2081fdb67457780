"""`crbo rollout`: policies from files, options, the picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.cli import main
from crbo_ros.registry import make_task

PNG = b"\x89PNG\r\n\x1a\n"


def test_it_runs_theta_0_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "out.png"
    assert main(["rollout", "furuta", "--plant", "stand_in", "--plot", str(picture)]) == 0
    assert "completed, return 0.64" in capsys.readouterr().out
    assert picture.read_bytes()[:8] == PNG


@pytest.mark.parametrize("kind", ["npy", "json list", "json object"])
def test_a_policy_comes_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    theta = make_task("furuta").theta_0 + 0.01
    path = tmp_path / ("best.npy" if kind == "npy" else "best.json")
    if kind == "npy":
        np.save(path, theta)
    else:
        path.write_text(json.dumps(theta.tolist() if kind == "json list" else {"theta": theta.tolist(), "mean": 0.7}))
    assert main(["rollout", "furuta", "--theta", str(path), "--seed", "2"]) == 0
    direct = make_task("furuta").rollout(theta, np.random.default_rng(2)).value
    assert f"best, seed 2: completed, return {direct:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["moon"], "no task is called 'moon'"),
        (["furuta", "--plant", "moon"], "choose one of stand_in"),
        (["furuta", "--theta", "none.npy"], "none.npy: there is no such file"),
        (["furuta", "--option", "stepped"], "expected NAME=VALUE"),
        (["furuta", "--video", "out.gif"], "cannot be filmed"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: list[Any], said: str
) -> None:
    assert main(["rollout", *arguments]) != 0
    assert said in capsys.readouterr().err


def test_a_theta_of_the_wrong_length_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "short.npy", np.zeros(3))
    assert main(["rollout", "furuta", "--theta", str(tmp_path / "short.npy")]) != 0
    assert "65 numbers" in capsys.readouterr().err


def test_options_reach_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["rollout", "furuta", "--option", "stepped=true", "--option", 'plant_options={"start_spread": 0.0}']) == 0
    )
