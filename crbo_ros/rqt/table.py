"""The window's table of episodes."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

from crbo_ros.numbers import number
from crbo_ros.rqt.qt import Qt, QtGui, readable
from crbo_ros.view.answers import describe
from crbo_ros.view.colors import OUTCOME_COLORS
from crbo_ros.view.run_view import Row, RunView

RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class EpisodeTable(QtGui.QStandardItemModel):  # type: ignore[misc]
    """A run's rows. Qt's own items, each made once: asking Python for some 1,600 things at every painting is dear."""

    COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
        ("id", lambda row: str(row.id)),
        ("kind", lambda row: row.kind),
        ("outcome", lambda row: row.outcome),
        ("return", lambda row: number(row.value)),
        ("bound", lambda row: number(row.bound)),
        ("reason", lambda row: row.remark),
    )
    NUMBERS = ("id", "return", "bound")

    def __init__(self) -> None:
        super().__init__(0, len(self.COLUMNS))
        self.setHorizontalHeaderLabels([name for name, _ in self.COLUMNS])
        self._brushes = {outcome: QtGui.QBrush(readable(color)) for outcome, color in OUTCOME_COLORS.items()}
        self._run: RunView | None = None
        self._shown = 0  # of the run's changes
        self._ids: list[int] = []

    def show_run(self, run: RunView) -> None:
        """Add the rows that are new, and write those again that have changed."""
        if run is not self._run:
            self.removeRows(0, len(self._ids))
            self._run, self._shown, self._ids = run, 0, []
        changed, self._shown = dict.fromkeys(run.changes[self._shown :]), len(run.changes)
        for id in changed:
            at, row = bisect.bisect_left(self._ids, id), run.row(id)
            if self._ids[at : at + 1] == [id]:
                self._write([self.item(at, column) for column in range(len(self.COLUMNS))], row)
            else:
                self._ids.insert(at, id)
                self.insertRow(at, self._write([QtGui.QStandardItem() for _ in self.COLUMNS], row))

    def _write(self, items: list[Any], row: Row) -> list[Any]:
        for item, (name, text) in zip(items, self.COLUMNS, strict=True):
            item.setText(text(row))
            item.setForeground(self._brushes.get(row.outcome, self._brushes["pending"]))
            item.setToolTip(describe(row))
            if name in self.NUMBERS:
                item.setTextAlignment(RIGHT)
        return items
