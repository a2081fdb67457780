"""The window's widget: plots, the current proposal with its verdict, buttons, a table of episodes.

Ten times a second it records what the client has collected, and redraws what changed. It never waits for ROS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from crbo_ros.rqt.accepting import Accepting
from crbo_ros.rqt.plots import make_plots
from crbo_ros.rqt.qt import Qt, QtCore, QtGui, QtWidgets, readable
from crbo_ros.rqt.table import EpisodeTable
from crbo_ros.rqt.trajectory import TrajectoryPlot
from crbo_ros.view.colors import ALARM, ATTENTION, GOOD, NEUTRAL, OUTCOME_COLORS
from crbo_ros.view.headline import headline
from crbo_ros.view.live import LiveView
from crbo_ros.view.run_view import RunView

PERIOD = 100  # ms
BUTTONS = {
    "stop": ("STOP (Esc)", "the safety monitor holds everything; a rollout under way is stopped"),
    "rearm": ("Re-arm", "let things move again after a stop"),
    "clear": ("Clear", "you have looked at the plant: a runner that is at fault, held, or waits for consent goes on"),
    "pause": ("Pause", "the optimizer hands out no further proposals"),
    "resume": ("Resume", "go on after a pause"),
    "approve": ("Approve", "let the waiting proposal run"),
    "reject": ("Reject", "veto the waiting proposal"),
    "violation": ("Violation …", "the last rollout did harm that its return does not show"),
}


class MonitorWidget(QtWidgets.QWidget):  # type: ignore[misc]
    """See the module's docstring. `client` has poll(), call(button, proposal_id, theta_hash), set_namespace(text)."""

    def __init__(self, client: Any, namespace: str = "") -> None:
        super().__init__()
        self.client, self.view = client, LiveView()
        self.setObjectName("CrboMonitor")
        self.setWindowTitle("CRBO Monitor")
        self.update_seconds = 0.0  # of the last refresh, for tests and curious people
        self._drawn: tuple[RunView, int] | None = None
        self._build(namespace)
        self._timer = QtCore.QTimer(self)
        self._timer.timeout.connect(self.refresh)
        self._timer.start(PERIOD)
        self.refresh()

    # -- building -----------------------------------------------------------------------------------

    def _build(self, namespace: str) -> None:
        self.metrics = QtWidgets.QLabel()
        self.metrics.setStyleSheet("font-weight: bold")
        self.metrics.setWordWrap(True)  # a small screen is narrower than the line
        self.plots = make_plots()
        self.tabs = QtWidgets.QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.plots, "Run")
        self.trajectory = TrajectoryPlot()
        self.tabs.addTab(self.trajectory, "Trajectory")
        side = QtWidgets.QWidget()
        column = QtWidgets.QVBoxLayout(side)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self._build_buttons())
        column.addWidget(self._build_proposal())  # before one's eyes when one approves it
        column.addWidget(self._build_words(namespace), 1)
        self.message = _wrapped()
        column.addWidget(self.message)
        column.addWidget(self._build_table(), 1)
        splitter = QtWidgets.QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.tabs)
        splitter.addWidget(side)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
        splitter.setSizes([660, 440])
        outer = QtWidgets.QVBoxLayout(self)
        outer.addWidget(self.metrics)
        outer.addWidget(splitter, 1)

    def _build_words(self, namespace: str) -> QtWidgets.QWidget:
        """What may be long scrolls: STOP and the proposal above it, and the table below it, stay where they are."""
        inner = QtWidgets.QWidget()
        column = QtWidgets.QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._build_graph(namespace))
        self.accepting = Accepting()
        column.addWidget(self.accepting)
        column.addStretch()
        area = QtWidgets.QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QtWidgets.QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(inner)
        area.setMinimumHeight(50)
        return area

    def _build_graph(self, namespace: str) -> QtWidgets.QWidget:
        box = QtWidgets.QGroupBox("Graph")
        form = QtWidgets.QFormLayout(box)
        self.namespace = QtWidgets.QComboBox()
        self.namespace.setEditable(True)
        self.namespace.setInsertPolicy(QtWidgets.QComboBox.InsertPolicy.NoInsert)
        self.namespace.setToolTip("ROS namespace of the nodes; empty: the first one with an optimizer; / is the root")
        self.namespace.setEditText(namespace)
        self.namespace.lineEdit().returnPressed.connect(self._choose_namespace)
        self.namespace.activated.connect(self._choose_namespace)
        self._chosen = namespace
        form.addRow("namespace", self.namespace)
        self.states = {}
        for name in ("optimizer", "monitor", "contract", "signals", "runner", "robot"):
            self.states[name] = _wrapped()
            form.addRow(name, self.states[name])
        return box

    def _build_proposal(self) -> QtWidgets.QWidget:
        box = QtWidgets.QGroupBox("Current proposal")
        column = QtWidgets.QVBoxLayout(box)
        self.proposal, self.verdict = _wrapped(), _wrapped()
        column.addWidget(self.proposal)
        column.addWidget(self.verdict)
        return box

    def _build_buttons(self) -> QtWidgets.QGridLayout:
        grid = QtWidgets.QGridLayout()
        self.buttons = {}
        for i, (name, (text, tip)) in enumerate(BUTTONS.items()):
            button = QtWidgets.QPushButton(text)
            button.setObjectName(name)
            button.setToolTip(tip)
            button.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # a stray space bar approves nothing
            # `pressed`, not `clicked`: stop acts when the button goes down, wherever the mouse slips to.
            signal = button.pressed if name == "stop" else button.clicked
            signal.connect(self._slot(name))
            self.buttons[name] = button
            grid.addWidget(button, i // 3, i % 3)
        self.buttons["stop"].setStyleSheet(
            f"QPushButton:enabled {{ background: {ALARM}; color: white; font-weight: bold; padding: 6px; "
            "border: 1px solid white; border-radius: 3px }"  # (without a border some styles paint a paler one)
        )
        # From anywhere in the window, whatever has the focus, and never disabled: who presses it twice is right too.
        shortcut = QtGui.QShortcut if hasattr(QtGui, "QShortcut") else QtWidgets.QShortcut  # (Qt 6, Qt 5)
        self.stop_key = shortcut(QtGui.QKeySequence("Esc"), self)
        self.stop_key.setContext(Qt.ShortcutContext.ApplicationShortcut)
        self.stop_key.activated.connect(self._slot("stop"))
        return grid

    def _slot(self, name: str) -> Callable[..., None]:
        return lambda *_: self.click(name)

    def _build_table(self) -> QtWidgets.QTableView:
        self.episodes = EpisodeTable()
        self.table = QtWidgets.QTableView()
        self.table.setModel(self.episodes)
        self.table.setEditTriggers(QtWidgets.QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setWordWrap(False)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(20)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.setMinimumHeight(60)
        self.table.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectionBehavior.SelectRows)
        font = self.table.font()
        font.setPointSizeF(0.85 * font.pointSizeF())  # so that there is room for the reasons
        self.table.setFont(font)
        metrics = QtGui.QFontMetrics(font)
        for column, widest in enumerate(("1000", "acquisition", "terminated", "-0.1234", "-0.1234")):
            self.table.setColumnWidth(column, metrics.horizontalAdvance(widest) + 12)
        self._follows = True  # the newest row is kept in sight, unless somebody has scrolled up to read
        bar = self.table.verticalScrollBar()
        bar.actionTriggered.connect(self._on_scroll)
        bar.rangeChanged.connect(self._on_longer)
        return self.table

    def _on_scroll(self, *_: object) -> None:
        bar = self.table.verticalScrollBar()
        self._follows = bar.sliderPosition() >= bar.maximum()

    def _on_longer(self, *_: object) -> None:
        if self._follows:
            self.table.scrollToBottom()

    # -- clicks -------------------------------------------------------------------------------------

    def click(self, name: str) -> None:
        """Do what a button says; the answer comes with a later refresh."""
        waiting = self.view.waiting()
        if name in ("approve", "reject"):
            if not waiting or waiting[0].verdict is None:
                return
            hash = waiting[0].verdict.theta_hash
            self.client.call(name, waiting[0].id, hash)
            self.view.asked(name, hash)
        elif name == "clear":
            if runner := self.view.to_clear():
                self.client.call(name, 0, runner)
                self.view.asked(name)
        elif name == "violation":
            id = self.view.reportable()
            comment, said = self.ask(f"What did the rollout of proposal {id} do?")
            if not said or not comment.strip():
                return
            self.client.call(name, id, comment.strip())
            self.view.asked(name)
        else:
            self.client.call(name)
            self.view.asked(name)
        self._show_words()

    def ask(self, question: str) -> tuple[str, bool]:
        """(what a person wrote, whether they meant it)."""
        text, said = QtWidgets.QInputDialog.getText(self, "Report a violation", question)
        return str(text), bool(said)

    def _choose_namespace(self, *_: object) -> None:
        text = self.namespace.currentText().strip()
        if text != self._chosen:
            self.set_namespace(text)

    def set_namespace(self, text: str) -> None:
        """Watch another namespace."""
        self._chosen = text
        self.namespace.setEditText(text)
        self.view.clear()
        self.client.poll()
        self.client.set_namespace(text)
        self._drawn = None
        self.refresh()

    # -- showing ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Record what has arrived and show it."""
        start = time.perf_counter()
        self.view.record(self.client.poll())
        self._show_words()
        run = self.view.run
        if (run, len(run.changes)) != self._drawn:
            self._drawn = (run, len(run.changes))
            self.plots.show_series(run.series())
            self.episodes.show_run(run)
            self.update_seconds = time.perf_counter() - start

    def _show_words(self) -> None:
        view = self.view
        _set(self.metrics, headline(view.run) or "waiting for an optimizer ...")
        state = view.state.state if view.optimizer_alive and view.state else ""
        _set(self.states["optimizer"], view.optimizer_text(), {"running": GOOD, "error": ALARM}.get(state, ATTENTION))
        _set(self.states["monitor"], view.monitor_text(), GOOD if view.armed else ALARM)
        kind, sentence = view.contract_text()
        colors = {"kept": GOOD, "empty": ATTENTION, "refused": ALARM, "none": ATTENTION}
        _set(self.states["contract"], sentence, colors.get(kind, NEUTRAL))
        runners = {status.state for status in view.live_runners()}
        alarm = ALARM if runners & {"held", "error"} else GOOD if runners & {"preparing", "running"} else NEUTRAL
        _set(self.states["runner"], view.runner_text(), alarm)
        within, sentence = view.signals_text()
        _set(self.states["signals"], sentence, NEUTRAL if within else ALARM)
        plant, sentence = view.plant_text()
        colors = {"plant_safe": GOOD, "plant_moving": ATTENTION, "plant_unknown": ALARM}
        _set(self.states["robot"], sentence, colors.get(plant, NEUTRAL))
        self.trajectory.show_pair(*view.trajectories(view.run, self._selected()))
        _set(self.proposal, view.proposal_text())
        status, sentence = view.verdict_text()
        colors = {"approved": GOOD, "vetoed": OUTCOME_COLORS["vetoed"], "waiting": ATTENTION}
        _set(self.verdict, sentence, colors.get(status, NEUTRAL))
        _set(self.message, view.message, NEUTRAL)
        self.message.setVisible(bool(view.message))
        for name, on in view.buttons().items():
            if self.buttons[name].isEnabled() != on:
                self.buttons[name].setEnabled(on)
        self.accepting.show_state(view.state)
        self._show_namespaces()

    def _selected(self) -> int:
        """The proposal that is chosen in the table; -1: none."""
        chosen = self.table.selectionModel().selectedRows()
        return int(self.episodes.item(chosen[0].row(), 0).text()) if chosen else -1

    def _show_namespaces(self) -> None:
        publishers = self.view.publishers
        here = publishers.namespace if publishers.namespace else "..."
        self.namespace.lineEdit().setPlaceholderText(f"automatic ({here})")
        listed = [self.namespace.itemText(i) for i in range(self.namespace.count())]
        if listed != ["", *publishers.namespaces] and not self.namespace.lineEdit().hasFocus():
            self.namespace.clear()
            self.namespace.addItems(["", *publishers.namespaces])
            self.namespace.setEditText(self._chosen)

    def shutdown(self) -> None:
        """No further refreshes."""
        self._timer.stop()


def _wrapped() -> QtWidgets.QLabel:
    label = QtWidgets.QLabel()
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label


def _set(label: QtWidgets.QLabel, text: str, color: str = "") -> None:
    """Change a label only where it differs: a layout pass for each of them, ten times a second, would be waste."""
    if label.text() != text:
        label.setText(text)
        label.setToolTip(text)  # whole, where there is not room enough
    style = f"color: {readable(color).name()}" if color else label.styleSheet()
    if label.styleSheet() != style:
        label.setStyleSheet(style)
