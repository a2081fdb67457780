"""Acceptance as a method: a coin's order, carried on after a crash, the new policy only when it is certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.problem import custom_problem
from crbo_ros.core.space import Space
from crbo_ros.errors import Exhausted, InvalidInput
from crbo_ros.methods.acceptance import Acceptance
from crbo_ros.protocol.optimizer import EXHAUSTED, OptimizerServer
from crbo_ros.protocol.records import COMPLETED, FAILED, VETOED, Episode
from crbo_ros.registry import make_method

SPACE, OLD, NEW = Space([0, 0], [1, 1]), [0.4, 0.5], [0.6, 0.5]


def run(method: Acceptance, gain: float, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        try:
            proposal = method.ask()
        except Exhausted as why:
            return str(why)
        method.tell(proposal.id, float(rng.normal()) + gain * (proposal.kind == "new"))
    return "undecided"


def test_the_new_policy_is_the_best_only_once_that_is_certain() -> None:
    method = Acceptance(SPACE, OLD, new=NEW, margin=0.5, seed=3)
    assert run(method, 3.0).startswith("better: certain at level 0.05 after")
    best = method.best()
    assert best is not None
    assert list(best.theta) == NEW
    worse = Acceptance(SPACE, OLD, new=NEW, margin=0.5, seed=3)
    assert "better: " not in run(worse, -3.0)
    best = worse.best()
    assert best is not None
    assert list(best.theta) == OLD


def test_nothing_is_certain_before_both_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five old rollouts as bad as the earlier ones are evidence, but nobody accepts what has not run here."""
    method = Acceptance(SPACE, OLD, new=NEW, margin=0.5, seed=3, earlier=[0.0, 9.0, 0.1, 5.0])
    monkeypatch.setattr(Acceptance, "is_new", lambda own, id: id >= 12)
    for _ in range(12):
        proposal = method.ask()
        assert proposal.kind == "old"
        method.tell(proposal.id, 0.01 * proposal.id)
    assert method.report()["better"] > 20.0
    best = method.best()
    assert best is not None
    assert (best.id, list(best.theta)) == (11, OLD)
    method.tell(method.ask().id, 9.0)
    with pytest.raises(Exhausted, match="better: certain"):
        method.ask()
    best = method.best()
    assert best is not None
    assert (best.id, list(best.theta)) == (12, NEW)


@pytest.mark.parametrize("seed", [0, 3])  # the coin's first side: new, old (which the monitor refuses)
def test_an_old_policy_that_has_not_run_is_not_recommended(seed: int) -> None:
    method = Acceptance(SPACE, OLD, new=NEW, seed=seed)
    while not method.is_new(len(method.trials)):
        method.veto(method.ask().id, "not now")
    method.tell(method.ask().id, 1.0)
    assert method.best() is None


def test_the_order_is_a_coins_and_the_same_again_with_the_same_seed() -> None:
    kinds = [[Acceptance(SPACE, OLD, new=NEW, seed=seed).is_new(i) for i in range(400)] for seed in (1, 1, 2)]
    assert kinds[0] == kinds[1] != kinds[2]
    assert 150 < sum(kinds[0]) < 250


def test_a_policy_that_the_monitor_refuses_cannot_be_accepted() -> None:
    method = Acceptance(SPACE, OLD, new=NEW)

    def go_on() -> None:
        for _ in range(40):
            proposal = method.ask()
            method.veto(proposal.id) if proposal.kind == "new" else method.tell(proposal.id, 1.0)

    with pytest.raises(Exhausted, match="refused the new policy 3 times"):
        go_on()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"new": OLD}, "old policy itself"), ({"new": [2.0, 0.5]}, "outside"), ({"new": NEW, "level": 0.0}, "level"),
     ({"new": NEW, "margin": -1.0}, "margin")],
)  # fmt: skip
def test_wrong_settings_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Acceptance(SPACE, OLD, **options)


def server(path: Path, settings: dict[str, Any]) -> OptimizerServer:
    problem = custom_problem([0, 0], [1, 1], OLD)

    def make(stored: dict[str, Any]) -> Any:
        return make_method("acceptance", problem.space, problem.theta_0, seed=4, **stored)

    return OptimizerServer.open(
        path, problem=problem, name="a", method="acceptance", make=make, seed=4, settings=settings, budget=100
    )


def step(optimizer: OptimizerServer, number: int, outcome: str = COMPLETED) -> bool:
    answer = optimizer.propose("/runner", f"request {number}")
    if answer.offer is None or answer.status != "ok":
        return False
    offer = answer.offer
    value = (3.0 if offer.kind == "new" else 0.0) + 0.1 * np.sin(number) if outcome == COMPLETED else float("nan")
    episode = Episode(f"e{number}", optimizer.uid, offer.id, "/runner", offer.theta, outcome, value)
    return optimizer.acknowledge(episode)[0] == "accepted"


def test_it_carries_on_after_a_crash_where_it_was(tmp_path: Path) -> None:
    settings = {"new": NEW, "level": 0.05, "margin": 0.5}
    whole = server(tmp_path / "whole.sqlite", settings)
    whole.attach([(OLD, 0.0), (NEW, 3.0)], "earlier")
    broken = server(tmp_path / "broken.sqlite", settings)
    broken.attach([(OLD, 0.0), (NEW, 3.0)], "earlier")
    outcomes = [COMPLETED, FAILED, COMPLETED, VETOED, *[COMPLETED] * 60]
    for number, outcome in enumerate(outcomes):
        broken.close()  # a crash after each rollout
        broken = server(tmp_path / "broken.sqlite", settings)
        assert step(whole, number, outcome) == step(broken, number, outcome)
    assert whole.state == broken.state == EXHAUSTED
    assert whole.message == broken.message
    assert whole.method.test.rollouts == broken.method.test.rollouts  # type: ignore[attr-defined]
    assert whole.method.test.verdict == "better"  # type: ignore[attr-defined]


def test_in_pairs_each_start_state_is_run_by_both_in_a_coins_order() -> None:
    method = Acceptance(SPACE, OLD, new=NEW, paired=True, seed=3, margin=0.5)
    rng, orders = np.random.default_rng(0), []
    states: dict[int, float] = {}
    for _ in range(80):
        try:
            proposal = method.ask()
        except Exhausted as why:
            conclusion = str(why)
            break
        state = states.setdefault(proposal.id // 2, float(10.0 * rng.normal()))
        orders.append(proposal.kind)
        method.tell(proposal.id, float(state + 0.3 * rng.normal() + 1.0 * (proposal.kind == "new")))
    assert conclusion.startswith("better")
    pairs = list(zip(orders[::2], orders[1::2], strict=True))
    assert set(pairs) == {("old", "new"), ("new", "old")}
    assert len(method.test.pairs) == len(pairs)
