"""The graph as processes: all are told at once, one that does not answer holds up nobody, the dead come back."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crbo_ros.bringup import processes
from crbo_ros.bringup.graph import NodeSpec
from crbo_ros.bringup.processes import Graph

FAKE = Path(__file__).parent / "fake_node.py"
RUNNERS = [f"episode_runner_{i}" for i in range(4)]
PATIENCE = 3.0  # s
PROMPTLY = 0.5 * PATIENCE  # whoever waits for somebody else waits for a whole deadline


class Fakes:
    """A graph of fake nodes, and what they wrote."""

    def __init__(self, folder: Path, said: list[str]) -> None:
        self.ledger, self.said = folder / "ledger", said
        self.leaves: dict[str, tuple[float, int]] = {}  # name -> (seconds on its way out, exit code)
        names = [("optimizer", "optimizer"), ("safety_monitor", "safety_monitor")]
        names += [("episode_runner", name) for name in RUNNERS]
        (folder / "params.yaml").write_text("{}")
        specs = [NodeSpec(executable, name, folder / "params.yaml") for executable, name in names]
        self.graph = Graph(specs, say=said.append)

    def command(self, spec: NodeSpec, *_: Any) -> list[str]:
        seconds, code = self.leaves.get(spec.name, (0.0, 0))
        return [sys.executable, "-S", str(FAKE), spec.name, str(self.ledger), str(seconds), str(code)]

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []
        return [line for line in lines if line["event"] == event]

    def when(self, event: str) -> dict[str, float]:
        return {line["name"]: line["time"] for line in self.lines(event)}

    def wait_until(self, condition: Callable[[], bool]) -> None:
        assert self.graph.wait_for(condition, 60.0)

    def all_up(self) -> None:
        self.wait_until(lambda: len(self.when("up")) == len(self.graph.specs))


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    made = Fakes(tmp_path, [])
    monkeypatch.setattr(processes, "command", made.command)
    monkeypatch.setattr(processes, "PATIENCE", PATIENCE)
    yield made
    for process in made.graph.processes.values():
        process.kill()


def test_all_runners_get_their_signal_at_once_though_one_is_frozen_and_stays_so(fakes: Fakes) -> None:
    with fakes.graph as graph:
        fakes.all_up()
        os.kill(graph.processes[RUNNERS[0]].pid, signal.SIGSTOP)
        told = time.monotonic()
        codes = graph.end()
        took = time.monotonic() - told
    assert set(fakes.when("signal")) == {*RUNNERS[1:], "optimizer", "safety_monitor"}
    assert max(fakes.when("signal")[name] for name in RUNNERS[1:]) - told < PROMPTLY
    assert codes == {**dict.fromkeys([*RUNNERS[1:], "optimizer", "safety_monitor"], 0), RUNNERS[0]: -signal.SIGKILL}
    assert took < 2.0 * PATIENCE  # the frozen one costs one deadline, nobody else's


def test_slow_runners_are_waited_for_together_and_the_others_are_told_when_they_are_gone(fakes: Fakes) -> None:
    fakes.leaves = dict.fromkeys(RUNNERS, (1.0, 0))
    with fakes.graph as graph:
        fakes.all_up()
        told = time.monotonic()
        codes = graph.end()
    signals, out = fakes.when("signal"), fakes.when("out")
    assert max(signals[name] for name in RUNNERS) - told < PROMPTLY
    last = max(out[name] for name in RUNNERS)
    assert last - told < len(RUNNERS) * 1.0, "one after another"
    assert min(signals["optimizer"], signals["safety_monitor"]) > last
    assert abs(signals["optimizer"] - signals["safety_monitor"]) < PROMPTLY
    assert set(codes.values()) == {0}


def test_optimizer_and_monitor_are_told_together_and_killed_at_one_deadline(fakes: Fakes) -> None:
    with fakes.graph as graph:
        fakes.all_up()
        for name in ("optimizer", "safety_monitor"):
            os.kill(graph.processes[name].pid, signal.SIGSTOP)
        told = time.monotonic()
        codes = graph.end()
        assert time.monotonic() - told < 2.0 * PATIENCE
    assert codes["optimizer"] == codes["safety_monitor"] == -signal.SIGKILL


def test_a_killed_optimizer_or_monitor_is_started_again_but_not_for_ever(fakes: Fakes) -> None:
    with fakes.graph as graph:
        fakes.all_up()
        for count in range(processes.RESTARTS + 1):
            name = ("optimizer", "safety_monitor")[count % 2]
            ups = len(fakes.lines("up"))
            graph.processes[name].kill()
            ended = graph.revive()
            if count < processes.RESTARTS:
                fakes.wait_until(lambda: len(fakes.lines("up")) == ups + 1)  # noqa: B023 (called at once)
                assert graph.processes[name].code is None
        assert ended == {name: -signal.SIGKILL}
    said = [line for line in fakes.said if "started again" in line]
    assert len(said) == processes.RESTARTS
    assert said[0] == f"crbo: optimizer died (exit code -9); it is started again (1 of {processes.RESTARTS})"


@pytest.mark.parametrize(("name", "code"), [("optimizer", 0), ("safety_monitor", 1), (RUNNERS[0], 2)])
def test_what_ended_as_asked_or_was_refused_or_moves_things_is_not_started_again(
    fakes: Fakes, name: str, code: int
) -> None:
    fakes.leaves = {name: (0.0, code)}
    with fakes.graph as graph:
        fakes.all_up()
        os.kill(graph.processes[name].pid, signal.SIGINT)
        fakes.wait_until(lambda: graph.processes[name].code == code)
        assert graph.revive() == {name: code}
        assert graph.processes[name].code == code


def test_monitor_and_runners_share_a_random_key_and_everybody_knows_its_parent(fakes: Fakes) -> None:
    with fakes.graph:
        fakes.all_up()
    lines = {line["name"]: line for line in fakes.lines("up")}
    assert {line["CRBO_PARENT"] for line in lines.values()} == {str(os.getpid())}
    assert not lines["optimizer"]["CRBO_KEY"]
    (key,) = {line["CRBO_KEY"] for name, line in lines.items() if name != "optimizer"}
    assert len(key) == 32
    assert key != Graph([]).key


def test_a_graph_that_cannot_be_started_whole_is_ended_whole(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(spec: NodeSpec, *_: Any) -> list[str]:
        return ["/nowhere/at/all"] if spec.name == RUNNERS[3] else fakes.command(spec)

    monkeypatch.setattr(processes, "command", command)
    with pytest.raises(FileNotFoundError):
        fakes.graph.__enter__()
    assert len(fakes.graph.processes) == 5
    assert all(process.code is not None for process in fakes.graph.processes.values())
