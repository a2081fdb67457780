"""The curves of a Series: with pyqtgraph where it is installed (fast), else with matplotlib."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crbo_ros.errors import MissingDependency
from crbo_ros.rqt.qt import QtWidgets
from crbo_ros.view.colors import AVERAGE, BEST, BOUND, COVERAGE, GAMMA, OUTCOME_COLORS
from crbo_ros.view.model import Series
from crbo_ros.view.scale import readable_range

MARKERS = {"completed": "o", "terminated": "o", "vetoed": "x"}
MANY = 300  # episodes from which on strokes between bounds and returns would cover everything


def make_plots() -> QtWidgets.QWidget:
    """A widget with `show_series(series)`."""
    try:
        return PyqtgraphPlots()
    except ImportError:
        pass
    try:
        return MatplotlibPlots()
    except ImportError:
        raise MissingDependency("the plots need pyqtgraph (apt install python3-pyqtgraph) or matplotlib") from None


def y_range(series: Series) -> tuple[float, float] | None:
    """The returns with some room, and as much of the bounds as leaves them readable."""
    returns = np.concatenate([series.points["completed"][1], series.points["terminated"][1]])
    return readable_range(returns, np.concatenate([series.bounds[1], series.points["vetoed"][1]]))


def x_range(series: Series) -> tuple[float, float]:
    """From the first proposal to the newest."""
    newest = max((float(x[-1]) for x in (series.best[0], series.gamma[0]) if len(x)), default=0.0)
    room = 0.02 * newest + 0.5
    return -room, newest + room


def visible(points: tuple[Any, Any], limits: tuple[float, float] | None) -> tuple[Any, Any]:
    """Vetoes whose bound lies below the picture, or is not known, are drawn on its lower edge."""
    bottom = limits[0] + 0.02 * (limits[1] - limits[0]) if limits else 0.0
    return points[0], np.maximum(np.nan_to_num(points[1], nan=bottom, neginf=bottom), bottom if limits else -np.inf)


def broken(ids: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Vertical strokes as one line with gaps: x and y with NaN between the strokes. None where they would be a blot."""
    if len(ids) > MANY:
        return [], []
    gap = np.full(len(ids), math.nan)
    return np.column_stack([ids, ids, gap]).ravel(), np.column_stack([low, high, gap]).ravel()


class PyqtgraphPlots(QtWidgets.QWidget):
    """Returns above, coverage and gamma below; one item for each curve, whose data are replaced."""

    def __init__(self) -> None:
        super().__init__()
        import pyqtgraph

        pyqtgraph.setConfigOptions(background="w", foreground="#333333", antialias=False)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        self.returns, self.caution = pyqtgraph.PlotWidget(), pyqtgraph.PlotWidget()
        layout.addWidget(self.returns, 3)
        layout.addWidget(self.caution, 2)
        self.returns.setLabel("left", "return")
        self.returns.addLegend(offset=(-10, -10), labelTextSize="8pt", brush="#ffffffcc", verSpacing=-4)
        words = (("coverage", COVERAGE), ("gamma", GAMMA))  # the label is the legend
        self.caution.setLabel("left", ", ".join(f'<span style="color: {c}">{word}</span>' for word, c in words))
        self.caution.setLabel("bottom", "proposal")
        self.caution.setYRange(0.0, 1.05, padding=0.0)
        self.caution.setXLink(self.returns)
        for plot in (self.returns, self.caution):
            left, bottom = (plot.getPlotItem().getAxis(side) for side in ("left", "bottom"))
            left.setWidth(60)  # both plots begin at the same x
            left.enableAutoSIPrefix(False)
            bottom.setHeight(40 if plot is self.caution else 22)
            for axis in (left, bottom):
                # of fixed size: otherwise every new number is a new layout and a second painting
                axis.setStyle(autoExpandTextSpace=False, autoReduceTextSpace=False)
        self._follows = True
        self.returns.getViewBox().sigRangeChangedManually.connect(self._on_zoom)
        self._make_items(pyqtgraph.mkPen)

    def _make_items(self, pen: Any) -> None:
        plot = self.returns.plot
        self._strokes = plot(pen=pen("#C4C4C4"), connect="finite")
        item = plot(pen=None, symbol="t1", symbolSize=4, symbolPen=None, symbolBrush=BOUND, name="bound")
        self._bounds = _dressed(item, "t1", BOUND, None)
        self._best = plot(pen=pen(BEST, width=2), name="best so far")
        self._average = plot(pen=pen(AVERAGE, width=2), name="average")
        self.points = {}
        for outcome, marker in MARKERS.items():
            color = OUTCOME_COLORS[outcome]
            outline = pen(color, width=1 if marker == "o" else 2)
            item = plot(pen=None, symbol=marker, symbolSize=8, symbolBrush=color, symbolPen=outline, name=outcome)
            self.points[outcome] = _dressed(item, marker, color, outline)
        self._coverage = self.caution.plot(pen=pen(COVERAGE, width=2))
        self._gamma = self.caution.plot(pen=pen(GAMMA, width=2))

    def show_series(self, series: Series) -> None:
        self._strokes.setData(*broken(*series.bounds))
        self._bounds.setData(*series.bounds[:2])
        self._best.setData(*steps(*series.best))
        self._average.setData(*series.average)
        self._coverage.setData(*series.coverage)
        self._gamma.setData(*steps(*series.gamma))
        limits = y_range(series)
        for outcome, item in self.points.items():
            item.setData(*visible(series.points[outcome], limits))
        view = self.returns.getViewBox()
        if any(view.autoRangeEnabled()):  # at first, and after a click on the plot's "A"
            self._follows = True
        if self._follows and limits:  # both axes at once, which is one painting less than pyqtgraph's own way
            view.setRange(xRange=x_range(series), yRange=limits, padding=0.0)
        for plot in (self.returns, self.caution):  # now, instead of during a first painting that asks for a second
            plot.scene().prepareForPaint()

    def _on_zoom(self, *_: object) -> None:
        self._follows = False  # leave a reader who has zoomed alone


def _dressed(item: Any, symbol: str, brush: str, pen: Any) -> Any:
    """pyqtgraph's legend asks the scatter how it looks, which knows nothing before it has data."""
    item.scatter.setSymbol(symbol)
    item.scatter.setBrush(brush)
    item.scatter.setPen(pen)
    return item


def steps(x: Any, y: Any) -> tuple[Any, Any]:
    """The corners of a staircase through the points; a level stretch is one stroke, however many points lie on it."""
    if len(x) > 2:
        keep = np.r_[True, np.diff(y) != 0.0]
        keep[-1] = True
        x, y = x[keep], y[keep]
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


class MatplotlibPlots(QtWidgets.QWidget):
    """The same with matplotlib; slower, but on every ROS machine."""

    def __init__(self) -> None:
        super().__init__()
        from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 5.0))
        figure.subplots_adjust(left=0.11, right=0.98, top=0.98, bottom=0.09, hspace=0.08)
        self.canvas = FigureCanvasQTAgg(figure)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.canvas)
        self.returns, self.caution = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        self._make_lines()
        self.returns.set_ylabel("return")
        self.caution.set(ylabel="coverage, gamma", xlabel="proposal", ylim=(0.0, 1.05))
        for axes in (self.returns, self.caution):
            axes.grid(alpha=0.2)
            axes.legend(loc="lower right", fontsize=7, ncols=2)

    def _make_lines(self) -> None:
        plot = self.returns.plot
        (self._strokes,) = plot([], [], color=BOUND, linewidth=0.6, alpha=0.5)
        (self._bounds,) = plot([], [], "_", color=BOUND, markersize=5, label="bound")
        (self._best,) = plot([], [], color=BEST, drawstyle="steps-post", label="best so far")
        (self._average,) = plot([], [], color=AVERAGE, label="average")
        self.points = {
            outcome: plot([], [], marker, color=OUTCOME_COLORS[outcome], markersize=5, label=outcome)[0]
            for outcome, marker in MARKERS.items()
        }
        (self._coverage,) = self.caution.plot([], [], color=COVERAGE, label="coverage of the bound")
        (self._gamma,) = self.caution.plot([], [], color=GAMMA, drawstyle="steps-post", label="gamma in force")

    def show_series(self, series: Series) -> None:
        self._strokes.set_data(*broken(*series.bounds))
        self._bounds.set_data(*series.bounds[:2])
        self._best.set_data(*series.best)
        self._average.set_data(*series.average)
        self._coverage.set_data(*series.coverage)
        self._gamma.set_data(*series.gamma)
        limits = y_range(series)
        for outcome, line in self.points.items():
            line.set_data(*visible(series.points[outcome], limits))
        self.returns.set_xlim(*x_range(series))
        if limits:
            self.returns.set_ylim(*limits)
        self.canvas.draw_idle()
