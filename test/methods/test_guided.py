"""CRBO that begins with a simulator's path: it helps, a wrong one does no harm, and nothing of it is lost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.crbo import CRBO
from crbo_ros.core.guide import GuidePath
from crbo_ros.core.problem import Problem
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.methods.guided import Guided
from crbo_ros.protocol.optimizer import OptimizerServer
from crbo_ros.protocol.records import Episode, new_uid
from crbo_ros.registry import make_method
from crbo_ros.view.record import read_run

DIM = 12
SPACE, THETA_0 = Space(-np.ones(DIM), np.ones(DIM)), np.zeros(DIM)
UP = np.ones(DIM) / np.sqrt(DIM)


def value(theta: Any) -> float:
    return -float(np.sum((np.asarray(theta) - 0.6 * UP) ** 2))


def path(direction: np.ndarray = UP, length: float = 0.25) -> GuidePath:
    s = np.linspace(0.0, length, 6)
    return GuidePath(0.5 + np.outer(s, direction), 3.0 * s)


def guided(way: GuidePath | None = None, **options: Any) -> Guided:
    return Guided(SPACE, THETA_0, guide=lambda: way or path(), seed=3, **options)


def play(method: CRBO, episodes: int) -> np.ndarray:
    for _ in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, value(proposal.theta))
    return method.data()[1]


def kinds(method: CRBO) -> list[str]:
    return [trial.proposal.kind for trial in method.trials]


def test_a_good_guide_saves_episodes() -> None:
    plain, with_guide = CRBO(SPACE, THETA_0, seed=3), guided()
    assert np.mean(play(with_guide, 12)) > np.mean(play(plain, 12)) + 0.05
    assert kinds(with_guide)[:4] == ["start", "start", "guided", "guided"]


def test_a_wrong_guide_costs_one_short_step() -> None:
    method = guided(path(-UP))
    play(method, 12)
    assert kinds(method).count("guided") == 1
    step = SPACE.to_unit(method.trials[2].proposal.theta) - method.x0
    assert np.linalg.norm(step) < 0.4 * method.report()["r0"]
    assert "ended" in method.report()["guide"]


def test_every_step_is_within_the_radius_and_the_contract() -> None:
    method = guided(path(length=0.45), j_min_drop=0.2, budget=20)
    for _ in range(10):
        proposal = method.ask()
        if proposal.kind == "guided":
            assert method.contract.judge(SPACE.to_unit(proposal.theta), method.beliefs).permitted  # type: ignore[arg-type]
            near = np.min(np.linalg.norm(method.data()[0] - SPACE.to_unit(proposal.theta), axis=1))
            assert near <= 0.1006  # r0 of the prior at gamma 0.5 in 12 dimensions
        method.tell(proposal.id, value(proposal.theta))
    assert kinds(method).count("guided") >= 3


def test_a_veto_shortens_the_step_and_a_second_one_or_a_failure_ends_the_walk() -> None:
    method = guided()
    play(method, 2)
    first = method.ask()
    method.veto(first.id, "too far")
    second = method.ask()
    assert second.kind == "guided"
    assert np.linalg.norm(second.theta - THETA_0) < np.linalg.norm(first.theta - THETA_0)
    method.fail(second.id, "it fell")
    assert method.ask().kind != "guided"


def test_other_runners_get_proposals_of_crbos_own() -> None:
    method = guided()
    play(method, 2)
    assert [method.ask().kind for _ in range(3)] == ["guided", "initial", "initial"]


def test_it_carries_on_bit_for_bit_from_any_state() -> None:
    calls = []

    def once() -> GuidePath:
        calls.append(1)
        return path()

    method = Guided(SPACE, THETA_0, guide=once, seed=3, j_min_drop=0.5, budget=20)
    for n in range(10):
        state = json.loads(json.dumps(method.state(), default=lambda array: array.tolist()))
        twin = guided(j_min_drop=0.5, budget=20)
        twin.restore(state)
        ours, theirs = method.ask(), twin.ask()
        assert np.array_equal(ours.theta, theirs.theta), n
        assert (ours.kind, ours.reason) == (theirs.kind, theirs.reason)
        if n == 4:
            method.veto(ours.id, "no")
        else:
            method.tell(ours.id, value(ours.theta))
    assert len(calls) == 1


def test_a_killed_optimizer_goes_on_with_the_same_walk(tmp_path: Path) -> None:
    problem = Problem("toy", "none", SPACE, THETA_0)

    def run(file: Path, kill: bool) -> list[tuple[str, bytes]]:
        simulated: list[int] = []

        def guide() -> GuidePath:
            simulated.append(1)
            return path()

        def make(settings: dict[str, Any]) -> Any:
            return make_method("crbo", SPACE, THETA_0, seed=3, **{**settings, "guide": guide})

        def open_it() -> OptimizerServer:
            return OptimizerServer.open(
                file, problem=problem, name="toy", method="crbo", make=make, seed=3, settings={"guide": "nominal"}
            )

        server, seen = open_it(), []
        for _ in range(9):
            if kill:
                server.close()
                server = open_it()
            offer = server.propose("r", new_uid()).offer
            assert offer is not None
            seen.append((offer.kind, offer.theta.tobytes()))
            episode = Episode(new_uid(), server.uid, offer.id, "r", offer.theta, "completed", value(offer.theta))
            assert server.acknowledge(episode)[0] == "accepted"
        server.close()
        assert len(simulated) == 1, "from the first step on the path is in the store"
        return seen

    assert run(tmp_path / "a.sqlite", kill=True) == run(tmp_path / "b.sqlite", kill=False)
    assert read_run(tmp_path / "a.sqlite").best_source == "posterior mean"  # its record can be read without a simulator


def test_a_name_alone_is_enough_to_read_a_record_but_not_to_propose() -> None:
    method = make_method("crbo", SPACE, THETA_0, seed=3, guide="nominal")
    play(method, 2)
    with pytest.raises(InvalidInput, match="nominal"):
        method.ask()
    with pytest.raises(InvalidInput, match="guide"):
        make_method("crbo", SPACE, THETA_0, guide=3.0)
    with pytest.raises(InvalidInput, match="guide"):
        make_method("cma_es", SPACE, THETA_0, guide="nominal")
