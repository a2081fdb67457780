"""The monitor on a real Qt against real nodes in real processes."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.slow]


@pytest.fixture
def open_monitor(domain: Any, application: Any) -> Any:
    """open_monitor(namespace="") -> the widget on a real client, refreshed by its own timer."""
    from crbo_ros.rqt.client import RosClient
    from crbo_ros.rqt.widget import MonitorWidget

    opened = []

    def make(namespace: str = "") -> Any:
        client = RosClient(namespace)
        client.__enter__()
        widget = MonitorWidget(client, namespace)
        widget.resize(1200, 760)
        widget.show()
        opened.append((widget, client))
        return widget

    yield make
    for widget, client in opened:
        widget.shutdown()
        widget.close()
        client.close()


@pytest.fixture
def press(until: Any) -> Any:
    """press(widget, name): wait until a button is enabled, and click it once with the mouse."""
    from crbo_ros.rqt.qt import Qt

    QtTest = pytest.importorskip("PySide6.QtTest")

    def click(widget: Any, name: Any, seconds: float = 20.0) -> None:
        assert until(widget.buttons[name].isEnabled, seconds), (
            f"{name} was not enabled; {widget.states['monitor'].text()}"
        )
        QtTest.QTest.mouseClick(widget.buttons[name], Qt.MouseButton.LeftButton)

    return click


def shown(widget: Any, outcome: Any) -> Any:
    x, _ = widget.plots.points[outcome].getData()
    return 0 if x is None else len(x)


def outcomes(widget: Any) -> Any:
    return [row.outcome for row in widget.view.run.rows]


@pytest.fixture
def ros_threads(domain: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The threads on which messages arrived."""
    from crbo_ros.rqt.client import RosClient

    threads, original = set(), RosClient._on_message

    def spy(self: Any, kind: Any, message: Any) -> None:
        threads.add(threading.current_thread())
        original(self, kind, message)

    monkeypatch.setattr(RosClient, "_on_message", spy)
    return threads


def test_opened_before_the_nodes_its_curve_grows_with_each_episode_and_ros_never_calls_on_the_qt_thread(
    open_monitor: Any, toy_graph: Any, until: Any, ros_threads: Any
) -> None:
    pytest.importorskip("pyqtgraph")
    widget = open_monitor()
    counts: list[int] = []

    def grown() -> bool:
        counts.append(shown(widget, "completed"))
        return counts[-1] == 10

    with toy_graph(episodes=10, toy={"seconds": 0.3}):
        assert until(grown, 40)
        assert counts == sorted(counts)
        assert len(set(counts)) > 3, "it was not all there at once (a stalled machine may show two episodes in one)"
        assert until(lambda: "episode 10/10" in widget.metrics.text(), 30)
        # Their trajectories came over DDS, too: the newest one, and theta_0's if nobody was late.
        assert until(lambda: (pair := widget.view.trajectories(widget.view.run))[1] and pair[1].proposal_id == 9, 30)
        start, newest = widget.view.trajectories(widget.view.run)
        for known in filter(None, (start, newest)):
            theta = widget.view.run.row(known.proposal_id).proposal.theta
            assert set(known.values) == {theta[0]}
        assert widget.trajectory.words.text().startswith("proposal 9")
        assert len(widget.trajectory.curves.get("episode")[0]) == len(newest.time) > 0
    assert until(lambda: "gone" in widget.states["monitor"].text(), 30)
    assert ros_threads
    assert threading.main_thread() not in ros_threads


def test_opened_late_in_a_namespace_it_shows_what_was_and_stop_stops_on_the_first_click(
    open_monitor: Any, toy_graph: Any, until: Any, press: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRBO_KEY", "of the operator and the graph")
    graph = toy_graph(episodes=50, toy={"seconds": 3.0})
    graph.namespace = "lab"
    with graph:
        assert until(lambda: len(graph.ledger.lines("end")) >= 2, 40)
        widget = open_monitor()
        assert until(
            lambda: len(widget.view.run.rows) >= 3 and widget.states["runner"].text().startswith("running"), 20
        )
        assert widget.namespace.lineEdit().placeholderText() == "automatic (/lab)"
        assert until(lambda: outcomes(widget)[:2] == ["completed", "completed"], 30)
        # Early in a rollout, so that it is this one that is stopped.
        assert until(lambda: any(s.state == "running" and s.episode_time < 0.4 for s in widget.view.live_runners()), 20)
        press(widget, "stop")
        assert until(lambda: graph.ledger.lines("stopped"), 30), "no rollout was stopped"
        assert until(lambda: "HELD" in widget.states["monitor"].text(), 30)
        assert until(lambda: "stopped" in outcomes(widget), 30)
        moved = len(graph.ledger.lines("start"))
        press(widget, "rearm")
        assert until(lambda: len(graph.ledger.lines("start")) > moved, 30), "nothing moved after re-arming"
        press(widget, "pause")
        assert until(lambda: widget.states["optimizer"].text().startswith("paused"), 30)
        press(widget, "resume")
        assert until(lambda: widget.states["optimizer"].text() == "running", 30)


def test_approve_lets_one_run_and_reject_vetoes_with_the_reason_in_its_colour(
    open_monitor: Any, toy_graph: Any, until: Any, press: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.rqt.qt import Qt, readable
    from crbo_ros.view.colors import OUTCOME_COLORS

    monkeypatch.setenv("CRBO_KEY", "the graph's and the window's")
    with (graph := toy_graph(episodes=5, monitor={"require_operator": True})):
        widget = open_monitor()
        assert until(widget.buttons["approve"].isEnabled, 40)
        assert "waits for the operator" in widget.verdict.text()
        assert graph.ledger.lines("start") == []
        press(widget, "approve")
        assert until(lambda: outcomes(widget)[:2] == ["completed"] * 2, 30), "theta_0, and theta_0 again"
        assert until(lambda: (row := widget.view.current()) is not None and row.id == 2, 30)
        assert until(widget.buttons["reject"].isEnabled, 30)
        press(widget, "reject")
        assert until(lambda: outcomes(widget)[2:3] == ["vetoed"], 30)
        assert "rejected by the operator: from the monitor" in widget.view.run.rows[2].reason
        index = widget.episodes.index(2, 2)
        color = widget.episodes.data(index, Qt.ItemDataRole.ForegroundRole).color().name().upper()
        assert color == readable(OUTCOME_COLORS["vetoed"]).name().upper()
        assert shown(widget, "vetoed") == 1
        assert len(graph.ledger.lines("start")) == 2


def test_a_node_that_goes_away_is_shown_as_gone_and_picked_up_again(
    open_monitor: Any, toy_graph: Any, until: Any
) -> None:
    graph = toy_graph(episodes=500, toy={"seconds": 0.2})
    with graph:
        widget = open_monitor("/")
        assert until(lambda: outcomes(widget).count("completed") >= 2, 40)
        assert until(lambda: widget.states["monitor"].text() == "armed", 20)
        graph.processes["safety_monitor"].kill()
        assert until(lambda: "gone" in widget.states["monitor"].text(), 30), widget.states["monitor"].text()
        graph.start("safety_monitor")
        assert until(lambda: widget.states["monitor"].text() == "armed", 20)
        graph.processes["episode_runner"].kill()
        graph.processes["optimizer"].kill()
        assert until(lambda: widget.states["runner"].text() == "none", 30)
        seen = outcomes(widget).count("completed")
        graph.start("optimizer")
        graph.start("episode_runner")
        assert until(lambda: outcomes(widget).count("completed") >= seen + 2, 40)
        ids = [row.id for row in widget.view.run.rows]
        assert ids == sorted(set(ids))


def test_a_stop_that_nobody_answers_is_told(open_monitor: Any, until: Any, press: Any) -> None:
    widget = open_monitor()
    press(widget, "stop")
    assert until(lambda: "/stop is offered by nobody" in widget.message.text(), 30)


def test_the_window_opens_by_command_makes_a_picture_and_closes_on_a_signal(
    domain: Any, application: Any, tmp_path: Path
) -> None:
    picture = tmp_path / "monitor.png"
    command = [sys.executable, "-m", "crbo_ros.cli", "gui", "--size", "900x600", "--screenshot", str(picture)]
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "the monitor is open" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert picture.stat().st_size > 5_000


def test_without_a_screen_the_window_says_what_to_do(
    domain: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], application: Any
) -> None:
    from crbo_ros import cli

    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["gui"]) == 1
    assert "there is no screen here" in capsys.readouterr().err
