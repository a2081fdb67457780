"""The monitor's widget: plots, the current proposal with its verdict, buttons, a table of episodes.

Ten times a second it takes what the client has collected, and redraws what changed. It never waits for ROS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from crbo_ros.rqt.plots import make_plots
from crbo_ros.rqt.qt import Qt, QtCore, QtGui, QtWidgets
from crbo_ros.view.colors import OUTCOME_COLORS
from crbo_ros.view.model import MonitorModel, Row, number

PERIOD = 100  # ms
GREEN, RED, AMBER, GREY = "#1B7F4B", "#C2185B", "#B26A00", "#666666"
BUTTONS = {
    "stop": ("STOP", "the safety monitor holds everything; a rollout under way is stopped"),
    "rearm": ("Re-arm", "let things move again after a stop"),
    "pause": ("Pause", "the optimizer hands out no further proposals"),
    "resume": ("Resume", "go on after a pause"),
    "approve": ("Approve", "let the waiting proposal run"),
    "reject": ("Reject", "veto the waiting proposal"),
}

# Enumerations as numbers and brushes ready made: Qt asks for these some 800 times whenever the table is painted.
DISPLAY, FOREGROUND = int(Qt.ItemDataRole.DisplayRole), int(Qt.ItemDataRole.ForegroundRole)
ALIGNMENT, TOOL_TIP = int(Qt.ItemDataRole.TextAlignmentRole), int(Qt.ItemDataRole.ToolTipRole)
RIGHT = int(Qt.AlignmentFlag.AlignRight) | int(Qt.AlignmentFlag.AlignVCenter)
BRUSHES = {outcome: QtGui.QBrush(QtGui.QColor(color)) for outcome, color in OUTCOME_COLORS.items()}


class EpisodeTable(QtCore.QAbstractTableModel):
    """The rows of the model, made into text only where they are seen."""

    COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
        ("id", lambda row: str(row.id)),
        ("kind", lambda row: row.proposal.kind if row.proposal else ""),
        ("outcome", lambda row: row.outcome),
        ("return", lambda row: number(row.value)),
        ("bound", lambda row: number(row.bound)),
        ("reason", lambda row: row.reason),
    )

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def show_rows(self, rows: list[Row]) -> None:
        """Rows are only ever appended within an experiment; what is already there may have changed."""
        old, new = len(self.rows), len(rows)
        if new < old:
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()
            return
        if new > old:
            self.beginInsertRows(QtCore.QModelIndex(), old, new - 1)
        self.rows = rows
        if new > old:
            self.endInsertRows()
        if new:
            self.dataChanged.emit(self.index(0, 0), self.index(new - 1, len(self.COLUMNS) - 1))

    def rowCount(self, parent: Any = None) -> int:
        return len(self.rows)

    def columnCount(self, parent: Any = None) -> int:
        return len(self.COLUMNS)

    def data(self, index: Any, role: int = 0) -> Any:
        if role == DISPLAY:
            return self.COLUMNS[index.column()][1](self.rows[index.row()])
        if role == FOREGROUND:
            return BRUSHES.get(self.rows[index.row()].outcome)
        if role == ALIGNMENT and index.column() in (0, 3, 4):
            return RIGHT
        if role == TOOL_TIP:
            return self.rows[index.row()].reason
        return None

    def headerData(self, section: int, orientation: Any, role: int = 0) -> Any:
        if role == DISPLAY and orientation == Qt.Orientation.Horizontal:
            return self.COLUMNS[section][0]
        return None


class MonitorWidget(QtWidgets.QWidget):
    """See the module's docstring. `client` has poll(), call(button, proposal_id, theta_hash), set_namespace(text)."""

    def __init__(self, client: Any, namespace: str = "") -> None:
        super().__init__()
        self.client, self.model = client, MonitorModel()
        self.setObjectName("CrboMonitor")
        self.setWindowTitle("CRBO Monitor")
        self.update_seconds = 0.0  # of the last refresh, for tests and curious people
        self._drawn = -1
        self._build(namespace)
        self._timer = QtCore.QTimer(self)
        self._timer.timeout.connect(self.refresh)
        self._timer.start(PERIOD)
        self.refresh()

    # -- building -----------------------------------------------------------------------------------

    def _build(self, namespace: str) -> None:
        self.figures = QtWidgets.QLabel()
        self.figures.setStyleSheet("font-weight: bold")
        self.plots = make_plots()
        side = QtWidgets.QWidget()
        column = QtWidgets.QVBoxLayout(side)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._build_graph(namespace))
        column.addWidget(self._build_proposal())
        column.addLayout(self._build_buttons())
        self.message = _wrapped()
        column.addWidget(self.message)
        column.addWidget(self._build_table(), 1)
        splitter = QtWidgets.QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(self.plots)
        splitter.addWidget(side)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
        splitter.setSizes([660, 440])
        outer = QtWidgets.QVBoxLayout(self)
        outer.addWidget(self.figures)
        outer.addWidget(splitter, 1)

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
        for name in ("optimizer", "monitor", "runner"):
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
            grid.addWidget(button, i // 2, i % 2)
        self.buttons["stop"].setStyleSheet(
            f"QPushButton:enabled {{ background: {RED}; color: white; font-weight: bold; padding: 6px }}"
        )
        return grid

    def _slot(self, name: str) -> Callable[..., None]:
        return lambda *_: self.click(name)

    def _build_table(self) -> QtWidgets.QTableView:
        self.episodes = EpisodeTable()
        self.table = QtWidgets.QTableView()
        self.table.setModel(self.episodes)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(20)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectionBehavior.SelectRows)
        for column, width in enumerate((40, 80, 80, 70, 70)):
            self.table.setColumnWidth(column, width)
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
        waiting = self.model.waiting()
        if name in ("approve", "reject"):
            if not waiting or waiting[0].verdict is None:
                return
            hash = waiting[0].verdict.theta_hash
            self.client.call(name, waiting[0].id, hash)
            self.model.asked(name, hash)
        else:
            self.client.call(name)
            self.model.asked(name)
        self._show_words()

    def _choose_namespace(self, *_: object) -> None:
        text = self.namespace.currentText().strip()
        if text != self._chosen:
            self.set_namespace(text)

    def set_namespace(self, text: str) -> None:
        """Watch another namespace."""
        self._chosen = text
        self.namespace.setEditText(text)
        self.model.clear()
        self.client.poll()
        self.client.set_namespace(text)
        self._drawn = -1
        self.refresh()

    # -- showing ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what has arrived and show it."""
        start = time.perf_counter()
        self.model.take(self.client.poll())
        self._show_words()
        if self.model.version != self._drawn:
            self._drawn = self.model.version
            self.plots.show_series(self.model.series())
            self.episodes.show_rows(self.model.rows)
            self.update_seconds = time.perf_counter() - start

    def _show_words(self) -> None:
        model = self.model
        _set(self.figures, model.figures_text() or "waiting for an optimizer ...")
        state = model.state.state if model.optimizer_alive and model.state else ""
        _set(self.states["optimizer"], model.optimizer_text(), {"running": GREEN, "error": RED}.get(state, AMBER))
        _set(self.states["monitor"], model.monitor_text(), GREEN if model.armed else RED)
        runners = {status.state for status in model.live_runners()}
        alarm = RED if runners & {"held", "error"} else GREEN if "running" in runners else GREY
        _set(self.states["runner"], model.runner_text(), alarm)
        _set(self.proposal, model.proposal_text())
        status, sentence = model.verdict_text()
        colors = {"approved": GREEN, "vetoed": OUTCOME_COLORS["vetoed"], "waiting": AMBER}
        _set(self.verdict, sentence, colors.get(status, GREY))
        _set(self.message, model.message, GREY)
        for name, on in model.buttons().items():
            if self.buttons[name].isEnabled() != on:
                self.buttons[name].setEnabled(on)
        self._show_namespaces()

    def _show_namespaces(self) -> None:
        presence = self.model.presence
        here = presence.namespace if presence.namespace else "..."
        self.namespace.lineEdit().setPlaceholderText(f"automatic ({here})")
        listed = [self.namespace.itemText(i) for i in range(self.namespace.count())]
        if listed != ["", *presence.namespaces] and not self.namespace.lineEdit().hasFocus():
            self.namespace.clear()
            self.namespace.addItems(["", *presence.namespaces])
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
    style = f"color: {color}" if color else label.styleSheet()
    if label.styleSheet() != style:
        label.setStyleSheet(style)
