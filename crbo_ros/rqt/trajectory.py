"""An episode's trajectory against theta_0's, one column at a time; as far as the runner publishes them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from crbo_ros.errors import MissingDependency
from crbo_ros.rqt.plots import configure, dress, legend_style, matplotlib_figure
from crbo_ros.rqt.qt import QtWidgets, grounds, visible_color
from crbo_ros.view.colors import OUTCOME_COLORS, START
from crbo_ros.view.run_view import Array, Curve
from crbo_ros.view.values import EpisodeTrajectory

COLORS = {"theta_0": START, "episode": OUTCOME_COLORS["completed"]}


class PyqtgraphCurves:
    """Curves over time by name; the widget is `plot`."""

    def __init__(self) -> None:
        import pyqtgraph

        configure(pyqtgraph)
        self.plot: Any = pyqtgraph.PlotWidget()
        self.plot.setLabel("bottom", "time, s")
        self.plot.addLegend(offset=(-10, 10), **legend_style())
        for name, color in COLORS.items():
            self.plot.plot(name=name, pen=pyqtgraph.mkPen(visible_color(color), width=2))

    def get(self, name: str) -> Curve:
        return _known(*self._item(name).getData())

    def set(self, name: str, x: Array, y: Array) -> None:
        self._item(name).setData(x, y)

    def _item(self, name: str) -> Any:
        return self.plot.getPlotItem().listDataItems()[list(COLORS).index(name)]

    def draw(self) -> None:
        """It draws itself."""


class MatplotlibCurves:
    """The same with matplotlib."""

    def __init__(self) -> None:
        figure, self.plot = matplotlib_figure(layout="constrained")
        self._axes = figure.subplots()
        dress(self._axes)
        self._axes.set_xlabel("time, s")
        self._lines = {n: self._axes.plot([], [], color=visible_color(c), label=n)[0] for n, c in COLORS.items()}
        text = self._axes.xaxis.label.get_color()
        self._axes.legend(loc="upper right", fontsize=8, facecolor=grounds()[0], labelcolor=text)

    def get(self, name: str) -> Curve:
        return _known(*self._lines[name].get_data())

    def set(self, name: str, x: Array, y: Array) -> None:
        self._lines[name].set_data(x, y)

    def draw(self) -> None:
        self._axes.relim()
        self._axes.autoscale_view()
        self.plot.draw_idle()


def make_curves() -> PyqtgraphCurves | MatplotlibCurves:
    """With pyqtgraph where it is installed, else with matplotlib."""
    for kind in (PyqtgraphCurves, MatplotlibCurves):
        with contextlib.suppress(ImportError):
            return kind()
    raise MissingDependency("the plots need pyqtgraph (apt install python3-pyqtgraph) or matplotlib")


class TrajectoryPlot(QtWidgets.QWidget):  # type: ignore[misc]
    """A choice of the column and its curves."""

    def __init__(self) -> None:
        super().__init__()
        self.words = QtWidgets.QLabel()
        self.words.setWordWrap(True)
        self.column = QtWidgets.QComboBox()
        self.column.activated.connect(self._draw)
        self.curves = make_curves()
        column = QtWidgets.QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        for widget in (self.words, self.column, self.curves.plot):
            column.addWidget(widget)
        self._shown: tuple[EpisodeTrajectory | None, EpisodeTrajectory | None] = (None, None)
        self.show_pair(None, None)

    def show_pair(self, start: EpisodeTrajectory | None, episode: EpisodeTrajectory | None) -> None:
        """Nothing is drawn again that is shown already."""
        if (start, episode) == (None, None):
            self.words.setText(
                "no trajectory was published yet: runners send one after each episode, while this window is open"
            )
        if start is self._shown[0] and episode is self._shown[1]:
            return
        self._shown = (start, episode)
        names = list(episode.names) if episode else []
        if names != [self.column.itemText(i) for i in range(self.column.count())]:
            self.column.clear()
            self.column.addItems(names)
        if episode:
            missing = "" if start else "; theta_0 ran before this window was opened"
            self.words.setText(f"proposal {episode.proposal_id}{missing}. Choose another in the table of episodes.")
        self._draw()

    def _draw(self, *_: object) -> None:
        for name, shown in zip(COLORS, self._shown, strict=True):
            self.curves.set(name, *_curve(shown, self.column.currentText()))
        self.curves.draw()


def _known(x: Array | None, y: Array | None) -> Curve:
    none: Array = np.empty(0)
    return (none, none) if x is None or y is None else (np.asarray(x), np.asarray(y))


def _curve(shown: EpisodeTrajectory | None, name: str) -> Curve:
    if shown is None or name not in shown.names:
        return np.empty(0), np.empty(0)
    time = np.asarray(shown.time, dtype=np.float64)
    values = np.asarray(shown.values, dtype=np.float64).reshape(len(time), len(shown.names))
    return time, values[:, list(shown.names).index(name)]
