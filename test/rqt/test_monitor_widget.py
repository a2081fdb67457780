"""The monitor's widget on a real Qt, offscreen, with values from a list instead of ROS."""

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crbo_ros.protocol.records import ContractState, Episode, Offer, Verdict
from crbo_ros.view.colors import (
    ALARM,
    ATTENTION,
    AVERAGE,
    BEST,
    BOUND,
    COVERAGE,
    GAMMA,
    GOOD,
    LINES,
    NEUTRAL,
    OUTCOME_COLORS,
    START,
    WORDS,
    contrast,
)  # fmt: skip
from crbo_ros.view.live import KEPT
from crbo_ros.view.values import EpisodeTrajectory, Heartbeat, OptimizerState, Publishers, Reply, RunnerStatus

UID, MONITOR = "experiment", "monitor"
HERE = Publishers("/furuta", True, True, True, ("/furuta", "/other"))


class Client:
    """What the widget needs of a client."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.calls: list[tuple[str, int, str]] = []
        self.namespaces: list[str] = []

    def poll(self) -> Any:
        values, self.values = self.values, []
        return values

    def call(self, button: Any, proposal_id: int = 0, theta_hash: str = "") -> None:
        self.calls.append((button, proposal_id, theta_hash))

    def set_namespace(self, text: Any) -> None:
        self.namespaces.append(text)


def state(word: str = "running") -> Any:
    return OptimizerState("furuta", UID, "furuta", "crbo", word, best_id=3, best_mean=0.5, completed=4, budget=10)


def episodes(count: Any, first: int = 0, outcome: str = "completed", reason: str = "") -> Any:
    rng = np.random.default_rng(first)
    found: list[Any] = []
    for id in range(first, first + count):
        bound = rng.uniform(0.0, 0.4)
        found.append(
            Offer("furuta", UID, "", id, np.zeros(2), f"hash {id}", "acquisition", worst_case=bound, gamma=0.4)
        )
        value = rng.uniform(0.4, 0.8) if outcome in ("completed", "terminated") else math.nan
        found.append(Episode(f"episode {id}", UID, id, "r", np.zeros(2), outcome, value, reason, "", bound))
    return found


def verdict(id: Any, status: Any, stamp: Any, reason: str = "waits for the operator (because)") -> Any:
    return Verdict(status, UID, id, f"hash {id}", "r", reason, MONITOR, stamp=stamp, worst_case=-0.3)


@pytest.fixture
def client() -> Any:
    return Client()


@pytest.fixture
def widget(application: Any, client: Client) -> Any:
    from crbo_ros.rqt.widget import MonitorWidget

    widget = MonitorWidget(client)
    widget._timer.stop()  # the tests refresh
    widget.resize(1200, 760)
    widget.show()
    yield widget
    widget.close()


def feed(widget: Any, *values: Any) -> None:
    widget.client.values += values
    widget.refresh()


def click(widget: Any, name: Any) -> None:
    from crbo_ros.rqt.qt import Qt

    QtTest = pytest.importorskip("PySide6.QtTest")
    QtTest.QTest.mouseClick(widget.buttons[name], Qt.MouseButton.LeftButton)


def count_pixels(widget: Any, color: Any) -> Any:
    """Pixels of the window close to a colour."""
    from crbo_ros.rqt.qt import QtGui

    image = widget.grab().toImage().convertToFormat(QtGui.QImage.Format.Format_RGB32)
    data = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)[:, :, 2::-1]
    wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return int(np.sum(np.all(np.abs(data.astype(int) - wanted) < 12, axis=2)))


def test_every_button_asks_for_what_it_says(widget: Any, client: Client) -> None:
    feed(widget, HERE, state(), Heartbeat(MONITOR, UID, True), *episodes(1), verdict(1, "waiting", 1.0))
    for name in ("stop", "pause", "approve"):
        click(widget, name)
    assert client.calls == [("stop", 0, ""), ("pause", 0, ""), ("approve", 1, "hash 1")]


def test_stop_acts_on_the_first_press_even_before_anything_is_known(widget: Any, client: Client) -> None:
    from crbo_ros.rqt.qt import Qt

    QtTest = pytest.importorskip("PySide6.QtTest")
    QtTest.QTest.mousePress(widget.buttons["stop"], Qt.MouseButton.LeftButton)
    assert client.calls == [("stop", 0, "")]


def test_escape_stops_whatever_has_the_focus(widget: Any, client: Client, application: Any) -> None:
    from crbo_ros.rqt.qt import Qt

    QtTest = pytest.importorskip("PySide6.QtTest")
    widget.show()
    widget.activateWindow()
    application.processEvents()
    for child in (widget, widget.table, widget.buttons["pause"]):
        child.setFocus()
        QtTest.QTest.keyClick(child, Qt.Key.Key_Escape)
    assert client.calls == [("stop", 0, "")] * 3


def test_the_threshold_is_a_line_where_one_is_effective(widget: Any) -> None:
    feed(widget, HERE, state(), Heartbeat(MONITOR, UID, True), *episodes(3))
    assert not len(widget.plots.threshold.getData()[0] if widget.plots.threshold.getData()[0] is not None else ())
    feed(widget, *(replace(verdict(i, "approved", 1.0 + i), threshold=0.25) for i in range(3)))
    assert set(widget.plots.threshold.getData()[1]) == {0.25}
    assert "threshold" in widget.plots.legend.text()


def trajectory(id: int, height: float) -> EpisodeTrajectory:
    return EpisodeTrajectory(UID, id, f"episode {id}", ("arm", "pendulum"), (0.0, 0.1, 0.2), (height, 9.0) * 3)


def test_an_episode_is_shown_against_theta_0_as_far_as_published(widget: Any) -> None:
    start = replace(episodes(1)[0], kind="start")
    feed(widget, HERE, state(), start, *episodes(4), trajectory(2, 2.0))
    plot = widget.trajectory
    assert "before this window was opened" in plot.words.text()
    assert not len(plot.curves.get("theta_0")[0])
    feed(widget, trajectory(0, 1.0), trajectory(3, 3.0))
    assert [set(plot.curves.get(name)[1]) for name in ("theta_0", "episode")] == [{1.0}, {3.0}]
    widget.table.selectRow(2)
    widget.refresh()
    assert plot.words.text().startswith("proposal 2")
    assert set(plot.curves.get("episode")[1]) == {2.0}


def test_old_trajectories_are_forgotten_but_for_theta_0s(widget: Any) -> None:
    feed(widget, HERE, state(), replace(episodes(1)[0], kind="start"), *episodes(80))
    feed(widget, *(trajectory(id, float(id)) for id in range(80)))
    first, last = widget.view.trajectories(widget.view.run)
    assert (first.proposal_id, last.proposal_id) == (0, 79)
    assert len(widget.view._trajectories) == KEPT + 1


def test_the_window_fits_a_small_screen_with_stop_and_the_proposal_in_sight(widget: Any, application: Any) -> None:
    feed(widget, HERE, state(), Heartbeat(MONITOR, UID, True), *episodes(50), verdict(50, "waiting", 1.0))
    widget.resize(800, 480)
    application.processEvents()
    assert (widget.width(), widget.height()) == (800, 480)
    for label in (widget.proposal, widget.verdict):
        assert label.height() >= label.heightForWidth(label.width()), f"cut off: {label.text()}"
    for child in (widget.buttons["stop"], widget.buttons["approve"], widget.verdict, widget.table):
        corner = child.mapTo(widget, child.rect().bottomRight())
        assert child.isVisible()
        assert corner.x() <= 800
        assert corner.y() <= 480


@pytest.mark.parametrize("ground", ["#ffffff", "#efefef", "#31363b", "#1e1e1e"])
def test_colours_can_be_read_on_light_and_on_dark(application: Any, client: Client, ground: str) -> None:
    """WCAG 2, AA: words 4.5 to 1 from where they stand, lines and points 3 to 1."""
    from crbo_ros.rqt.qt import QtGui, readable, visible_color
    from crbo_ros.rqt.widget import MonitorWidget

    before, palette = application.palette(), QtGui.QPalette()
    for role in (QtGui.QPalette.ColorRole.Base, QtGui.QPalette.ColorRole.Window):
        palette.setColor(role, QtGui.QColor(ground))
    application.setPalette(palette)
    try:
        for color in (GOOD, ALARM, NEUTRAL, ATTENTION, *OUTCOME_COLORS.values()):
            assert contrast(readable(color).name(), ground) >= WORDS, color
        for color in (BEST, AVERAGE, BOUND, GAMMA, COVERAGE, START, *OUTCOME_COLORS.values()):
            assert contrast(visible_color(color), ground) >= LINES, color
        window = MonitorWidget(client)
        window.shutdown()
        window.resize(800, 480)
        window.show()
        feed(window, HERE, state(), *episodes(30))
        assert count_pixels(window.plots, ground) > 0.4 * window.plots.width() * window.plots.height()
        assert count_pixels(window.plots, visible_color(OUTCOME_COLORS["completed"])) > 100
        window.close()
    finally:
        application.setPalette(before)


def test_buttons_are_enabled_only_when_they_apply(widget: Any) -> None:
    def on() -> set[str]:
        return {name for name, button in widget.buttons.items() if button.isEnabled()}

    assert on() == {"stop"}
    feed(widget, HERE, state(), Heartbeat(MONITOR, UID, True))
    assert on() == {"stop", "pause"}
    feed(widget, state("paused"), Heartbeat(MONITOR, UID, False, "stop was called"))
    assert on() == {"resume", "rearm"}
    feed(widget, Heartbeat(MONITOR, UID, True), *episodes(1), verdict(1, "waiting", 1.0))
    assert on() == {"stop", "resume", "approve", "reject", "violation"}


def test_what_a_person_saw_of_the_last_rollout_is_reported_and_an_empty_comment_is_not(
    widget: Any, client: Client
) -> None:
    feed(widget, HERE, state(), Heartbeat(MONITOR, UID, True), *episodes(3))
    said = iter([("", True), ("it scraped the table", False), (" it scraped the table ", True)])
    widget.ask = lambda question: next(said)
    for _ in range(3):
        click(widget, "violation")
    assert client.calls == [("violation", 2, "it scraped the table")]
    assert not widget.buttons["violation"].isEnabled()
    feed(widget, Reply("violation", True, "proposal 2 counts as a violation: 1 of 3"))
    assert "proposal 2 counts as a violation" in widget.message.text()


def test_the_contract_is_shown_with_what_was_spent_and_what_is_left(widget: Any) -> None:
    assert widget.states["contract"].text() == "not heard of yet"
    contract = ContractState(
        UID, MONITOR, "empty", "the account is empty: ...", 0.05, 100, 0.3, 0.6, 0.1, 3, 40, 4, 37, 3, 4, 1, -0.7, 2.5,
        0.1, 12, 0.8, 4.2, 3.1, 0.96, 1.4, (), ("arm", "current"), (1.3, 2.2), (1.5, 2.0),
    )  # fmt: skip
    feed(widget, HERE, state(), contract)
    text = widget.states["contract"].text()
    for part in ("empty: 3 of 4 falls of new policies in 40/100, 1 under way", "account -0.7", "proven: proposal 12"):
        assert part in text
    assert "the account is empty" in text
    assert "risk so far 7.5 % of the 5.0 % agreed" in text
    assert widget.states["signals"].text() == "arm up to 1.3 of 1.5; current up to 2.2 of 2"
    assert ALARM.lower() in widget.states["signals"].styleSheet()


def test_a_runner_at_fault_can_be_cleared(widget: Any, client: Client) -> None:
    feed(widget, HERE, state(), Heartbeat(MONITOR, UID, True), RunnerStatus("/a", "running"))
    assert not widget.buttons["clear"].isEnabled()
    feed(widget, RunnerStatus("/b", "error", "no answer from the card"))
    click(widget, "clear")
    assert client.calls == [("clear", 0, "/b")]


def test_a_click_on_a_disabled_button_does_nothing(widget: Any, client: Client) -> None:
    click(widget, "approve")
    click(widget, "rearm")
    assert client.calls == []


def test_a_veto_is_shown_in_its_colour_with_its_reason(widget: Any) -> None:
    from crbo_ros.rqt.qt import readable

    color = OUTCOME_COLORS["vetoed"]
    feed(widget, HERE, state(), *episodes(5))
    before = count_pixels(widget.plots, color)
    feed(widget, verdict(5, "vetoed", 1.0, "worst case -0.3 is below the threshold 0.1"))
    feed(widget, *episodes(1, 5, "vetoed", "worst case -0.3 is below the threshold 0.1"))
    assert count_pixels(widget.plots, color) > before + 20
    assert widget.verdict.text() == "vetoed: worst case -0.3 is below the threshold 0.1"
    assert readable(color).name() in widget.verdict.styleSheet()


def test_the_picture_is_not_blank_and_shows_every_kind_of_point(widget: Any) -> None:
    assert count_pixels(widget.plots, OUTCOME_COLORS["terminated"]) < 100  # the legend's only
    feed(widget, HERE, state(), *episodes(30), *episodes(10, 30, "terminated"), *episodes(5, 40, "vetoed"))
    for outcome in ("completed", "terminated", "vetoed"):
        assert count_pixels(widget.plots, OUTCOME_COLORS[outcome]) > 150, outcome


def test_the_table_follows_the_episodes(widget: Any) -> None:
    feed(widget, HERE, state(), *episodes(3))
    feed(widget, *episodes(1, 3, "stopped", "stop was called"))
    texts = [[widget.episodes.data(widget.episodes.index(r, c)) for c in range(6)] for r in range(4)]
    assert [row[0] for row in texts] == ["0", "1", "2", "3"]
    assert texts[3][1:4] == ["acquisition", "stopped", "–"]
    assert texts[3][5] == "stop was called"


def test_the_newest_row_stays_in_sight_until_somebody_scrolls_up(widget: Any, application: Any) -> None:
    from crbo_ros.rqt.qt import QtWidgets

    bar = widget.table.verticalScrollBar()
    feed(widget, HERE, state(), *episodes(100))
    application.processEvents()
    assert bar.value() == bar.maximum() > 0
    bar.triggerAction(QtWidgets.QAbstractSlider.SliderAction.SliderPageStepSub)
    read = bar.value()
    feed(widget, *episodes(10, 100))
    application.processEvents()
    assert bar.value() == read
    bar.triggerAction(QtWidgets.QAbstractSlider.SliderAction.SliderToMaximum)
    feed(widget, *episodes(10, 110))
    application.processEvents()
    assert bar.value() == bar.maximum()


def test_answers_are_told(widget: Any) -> None:
    feed(widget, Reply("pause", False, "cannot pause: finished"))
    assert widget.message.text() == "pause: not done: cannot pause: finished"


def test_another_namespace_starts_afresh(widget: Any, client: Client) -> None:
    feed(widget, HERE, state(), *episodes(3))
    assert [widget.namespace.itemText(i) for i in range(3)] == ["", "/furuta", "/other"]
    widget.set_namespace("/other")
    assert client.namespaces == ["/other"]
    assert widget.episodes.rowCount() == 0
    assert widget.metrics.text() == "waiting for an optimizer ..."


def test_one_more_episode_is_one_more_row_and_one_painting_of_each_plot(widget: Any, application: Any) -> None:
    """What it costs in milliseconds: `./crbo bench parts`."""
    pytest.importorskip("pyqtgraph")
    from crbo_ros.rqt.qt import QtCore

    painted, inserted, resets = [], [], []

    class Counter(QtCore.QObject):  # type: ignore[misc]
        def eventFilter(self, watched: Any, event: Any) -> Any:
            if event.type() == QtCore.QEvent.Type.Paint:
                painted.append(watched)
            return False

    feed(widget, HERE, state(), *episodes(1000))
    application.processEvents()
    counter = Counter()
    viewports = [widget.plots.returns.viewport(), widget.plots.caution.viewport()]
    for viewport in viewports:
        viewport.installEventFilter(counter)
    widget.episodes.rowsInserted.connect(lambda _, first, last: inserted.append((first, last)))
    widget.episodes.modelReset.connect(lambda: resets.append(1))
    for id in (1000, 1001):
        feed(widget, *episodes(1, id))
        application.processEvents()
    assert inserted == [(1000, 1000), (1001, 1001)]
    assert resets == []
    assert [painted.count(viewport) for viewport in viewports] == [2, 2]


def test_matplotlib_draws_the_same_where_pyqtgraph_is_missing(
    application: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.rqt import plots, widget

    monkeypatch.setitem(sys.modules, "pyqtgraph", None)
    window = widget.MonitorWidget(client)
    window._timer.stop()
    assert isinstance(window.plots, plots.MatplotlibPlots)
    window.resize(1200, 760)
    window.show()
    feed(window, HERE, state(), *episodes(30), *episodes(10, 30, "terminated"), *episodes(5, 40, "vetoed"))
    application.processEvents()
    for outcome in ("completed", "terminated", "vetoed"):
        assert count_pixels(window.plots, OUTCOME_COLORS[outcome]) > 50, outcome
    feed(window, trajectory(3, 2.0))
    window.tabs.setCurrentWidget(window.trajectory)
    application.processEvents()
    assert set(window.trajectory.curves.get("episode")[1]) == {2.0}
    assert count_pixels(window.trajectory, OUTCOME_COLORS["completed"]) > 50
    window.close()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal from Python 3.12 on")
def test_the_binding_keeps_its_references(widget: Any) -> None:
    """PySide6 6.12.0 lost one reference to None with every call, and ended in a crash after some minutes."""
    before = sys.getrefcount(None)
    for _ in range(1000):
        widget.metrics.setEnabled(True)
    assert sys.getrefcount(None) > before - 500
