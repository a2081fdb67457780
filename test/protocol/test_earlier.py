"""Earlier episodes: from a CSV file or another experiment of the same problem, all or none, and never another one's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.problem import Problem, custom_problem
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.protocol.earlier import earlier_episodes
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.optimizer import FINISHED, OptimizerServer
from crbo_ros.protocol.records import COMPLETED, Episode
from crbo_ros.registry import make_method

SPACE = Space([0.0, 0.0], [1.0, 1.0], names=["/pid kp", "/pid ki"])
PROBLEM = Problem("custom", "own", SPACE, np.array([0.4, 0.5]))


def server(path: Path, problem: Problem = PROBLEM, method: str = "crbo", budget: int = 3) -> OptimizerServer:
    def make(stored: dict[str, Any]) -> Any:
        return make_method(method, problem.space, problem.theta_0, seed=1, **stored)

    return OptimizerServer.open(
        path, problem=problem, name="a", method=method, make=make, seed=1, settings={}, budget=budget
    )


def step(optimizer: OptimizerServer, number: int) -> str:
    offer = optimizer.propose("/r", f"q{number}").offer
    assert offer is not None
    value = -float(np.sum((offer.theta - 0.7) ** 2))
    optimizer.acknowledge(Episode(f"e{number}", optimizer.uid, offer.id, "/r", offer.theta, COMPLETED, value))
    return offer.kind


def test_a_csv_file_is_read_by_names_and_without_what_has_no_return(tmp_path: Path) -> None:
    file = tmp_path / "earlier.csv"
    file.write_text("note,ki,kp,value\nfirst,0.2,0.1,-1.5\nbroken,0.3,0.3,\n,0.5,0.6,-0.5\n")
    found = earlier_episodes(str(file), PROBLEM)
    assert [(list(theta), value) for theta, value in found] == [([0.1, 0.2], -1.5), ([0.6, 0.5], -0.5)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kp,value\n0.1,1\n", "one column called /pid ki or ki or theta"),
        ("kp,ki,value\n0.1,x,1\n", "line 2: ki: 'x' is no number"),
        ("kp,ki,value\n0.1,3.0,1\n", "line 2: theta.1. = 3 is outside"),
        ("kp,ki,value\n0.1,0.2,inf\n", "line 2: value: is inf"),
        ("kp,ki,value\n", "no line with a return"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_by_line_and_column(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InvalidInput, match=words):
        earlier_episodes(str(tmp_path / "x.csv"), PROBLEM)


def test_another_experiment_of_the_same_problem_is_attached_and_a_different_one_refused(tmp_path: Path) -> None:
    first = server(tmp_path / "first" / "experiment.sqlite")
    kinds = [step(first, number) for number in range(3)]
    first.close()
    assert kinds[0] == "start"
    found = earlier_episodes("first", PROBLEM, str(tmp_path))
    second = server(tmp_path / "second.sqlite")
    assert second.attach(found, "first") == 3
    assert second.attach(found, "first") == 0  # once
    assert second.method.n == 3
    kinds = [step(second, number) for number in range(3)]
    assert kinds[0] == "start"  # theta_0 first, whatever is known
    assert second.state == FINISHED  # three episodes of its own
    again = server(tmp_path / "second2.sqlite")
    assert again.attach(found, "first") == 3
    reopened_from = tmp_path / "second2.sqlite"
    again.close()
    reopened = server(reopened_from)
    assert (reopened.method.n, reopened.budget) == (3, 6)
    with pytest.raises(InvalidInput, match="another problem"):
        earlier_episodes(str(tmp_path / "first"), custom_problem([0, 0], [1, 2], [0.4, 0.5]))


def test_the_monitor_hears_of_them_and_a_method_with_books_of_its_own_refuses(tmp_path: Path) -> None:
    optimizer = server(tmp_path / "a.sqlite")
    optimizer.attach([([0.1, 0.2], -1.0), ([0.4, 0.5], -0.5)], "a file")
    monitor = SafetyMonitor(PROBLEM, tmp_path / "monitor.sqlite")
    monitor._adopt(optimizer.uid)
    for episode in optimizer.returns()[1]:
        assert monitor.add_return(episode, verified=False)
    assert monitor.n == 2
    turbo = server(tmp_path / "b.sqlite", method="turbo")
    with pytest.raises(InvalidInput, match="'turbo' cannot begin with earlier episodes"):
        turbo.attach([([0.1, 0.2], -1.0)], "a file")
    assert turbo.method.n == 0
    assert step(turbo, 0) == "start"
