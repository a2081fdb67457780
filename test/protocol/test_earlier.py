"""Earlier episodes: from a CSV file, a bag or an experiment of the same problem, all or none, never another one's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.commands.export import write_mcap
from crbo_ros.core.problem import Problem, custom_problem
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.protocol.earlier import earlier_episodes
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.optimizer import FINISHED, OptimizerServer
from crbo_ros.protocol.records import COMPLETED, Episode
from crbo_ros.registry import make_method
from crbo_ros.view.record import read_run

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
    found, _ = earlier_episodes(str(file), PROBLEM)
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


def test_a_spreadsheets_file_is_read_and_one_of_no_sensible_size_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_bytes("\ufefftheta[0],theta[1],value\r\n0.1,0.2,-1\r\n".encode())
    ((theta, value),), _ = earlier_episodes(str(tmp_path / "x.csv"), PROBLEM)
    assert (theta.tolist(), value) == ([0.1, 0.2], -1.0)
    monkeypatch.setattr("crbo_ros.protocol.earlier.LARGEST_CSV", 10)
    with pytest.raises(InvalidInput, match=r"attach: .*x.csv: is larger than"):
        earlier_episodes(str(tmp_path / "x.csv"), PROBLEM)


def test_another_experiment_of_the_same_problem_is_attached_and_a_different_one_refused(tmp_path: Path) -> None:
    first = server(tmp_path / "first" / "experiment.sqlite")
    kinds = [step(first, number) for number in range(3)]
    first.close()
    assert kinds[0] == "start"
    found, other = earlier_episodes("first", PROBLEM, str(tmp_path))
    assert not other
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


FIELDS = "string episode_uid\nstring problem\nfloat64[] theta\nuint8 outcome\nfloat64 value\n"


def recording(file: Path, rows: list[dict[str, Any]], kind: str = "crbo_ros/msg/EpisodeReturn") -> Path:
    """A bag as `ros2 bag record` makes it, of the fields that matter."""
    module: Any = pytest.importorskip("mcap_ros2.writer")
    with open(file, "wb") as stream, module.Writer(stream) as writer:
        schema = writer.register_msgdef(kind, FIELDS)
        for number, row in enumerate(rows):
            whole = {
                "episode_uid": f"e{number}",
                "problem": PROBLEM.key,
                "theta": [0.1, 0.2],
                "outcome": 1,
                "value": -1.0,
            }
            writer.write_message("/lab/episode_return", schema, whole | row, number, number)
    return file


def test_a_recording_is_attached_each_episode_once_and_only_those_with_a_return(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"value": -2.0},
        {"outcome": 5, "value": math.nan},
        {"outcome": 2, "theta": [0.3, 0.4]},
        {"episode_uid": "e0"},
    ]
    rows[-1] |= {"value": -2.0}  # a report that was repeated
    (tmp_path / "bag").mkdir()
    recording(tmp_path / "bag" / "x_0.mcap", rows)
    for source in ("bag", "bag/x_0.mcap"):
        found, _ = earlier_episodes(str(tmp_path / source), PROBLEM)
        assert [(list(theta), value) for theta, value in found] == [([0.1, 0.2], -2.0), ([0.3, 0.4], -1.0)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"problem": PROBLEM.key.replace("plant=own", "plant=other")},
            "message 2: is of another problem .plant: own, not other",
        ),
        ({"problem": ""}, "message 2: does not say of which problem it is"),
        ({"theta": [0.1]}, "message 2: theta: expected a vector of 2"),
        ({"theta": [0.1, 7.0]}, "message 2: theta.1. = 7 is outside"),
        ({"value": math.inf}, "message 2: value: is inf"),
    ],
)
def test_what_is_wrong_with_a_recording_is_told_by_its_message(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        earlier_episodes(str(recording(tmp_path / "x.mcap", [{}, row])), PROBLEM)


def test_what_a_recording_lacks_is_told(tmp_path: Path) -> None:
    recording(tmp_path / "x.mcap", [{}], kind="std_msgs/msg/Other")
    with pytest.raises(InvalidInput, match=r"record the topic episode_return.; there is: /lab/episode_return .std"):
        earlier_episodes(str(tmp_path / "x.mcap"), PROBLEM)
    recording(tmp_path / "y.mcap", [{"outcome": 5}, {"outcome": 3}])
    with pytest.raises(InvalidInput, match="none of its 2 episodes has a return"):
        earlier_episodes(str(tmp_path / "y.mcap"), PROBLEM)
    with pytest.raises(InvalidInput, match=r"neither a .csv file, nor a bag .+, nor an experiment"):
        earlier_episodes(str(tmp_path / "z.db3"), PROBLEM)


def test_what_our_own_export_writes_can_be_attached(tmp_path: Path) -> None:
    pytest.importorskip("mcap_ros2.writer")
    first = server(tmp_path / "first" / "experiment.sqlite")
    for number in range(3):
        step(first, number)
    first.close()
    bag = write_mcap(read_run(tmp_path / "first" / "experiment.sqlite"), tmp_path / "first.mcap", "lab")
    of_store, of_bag = earlier_episodes("first", PROBLEM, str(tmp_path))[0], earlier_episodes(str(bag), PROBLEM)[0]
    assert [(list(t), v) for t, v in of_bag] == [(list(t), v) for t, v in of_store]


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


def test_returns_of_another_plant_inform_the_mean_alone_and_survive_a_restart(tmp_path: Path) -> None:
    old = Problem("custom", "simulated", SPACE, PROBLEM.theta_0)
    first = server(tmp_path / "first" / "experiment.sqlite", old, budget=20)
    for number in range(12):
        step(first, number)
    first.close()
    found, other = earlier_episodes("first", PROBLEM, str(tmp_path))
    assert other == "plant: own, not simulated"
    runs = {}
    for name in ("plain", "whole", "killed"):
        own, seen = server(tmp_path / f"{name}.sqlite", budget=20), []
        if name != "plain":
            assert own.inform(found) == 12
            assert own.inform(found) == 0  # once
        for number in range(8):
            if name == "killed":
                own.close()
                own = server(tmp_path / f"{name}.sqlite", budget=20)
            assert own.method.n == own.returns()[0] == number  # neither data nor for the monitor
            step(own, number)
            seen.append(own.method.trials[-1].proposal.theta.tobytes())
        assert own.inform(found) == 0  # too late
        runs[name] = seen
        own.close()
    assert runs["killed"] == runs["whole"] != runs["plain"]


def test_a_method_that_cannot_use_another_plants_returns_says_so(tmp_path: Path) -> None:
    turbo = server(tmp_path / "b.sqlite", method="turbo")
    with pytest.raises(InvalidInput, match="'turbo' cannot use returns of another plant"):
        turbo.inform([([0.1, 0.2], -1.0)] * 3)
