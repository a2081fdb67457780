"""The curves of a Series: with pyqtgraph where it is installed (fast), else with matplotlib."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crbo_ros.errors import MissingDependency
from crbo_ros.rqt.qt import QtWidgets
from crbo_ros.view.colors import AVERAGE, BEST, BOUND, COVERAGE, GAMMA, OUTCOME_COLORS
from crbo_ros.view.run_view import Array, Curve, Series
from crbo_ros.view.scale import visible, x_range, y_range

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


def broken(ids: Array, low: Array, high: Array) -> Curve:
    """Vertical strokes as one line with gaps: x and y with NaN between the strokes. None where they would be a blot."""
    if len(ids) > MANY:
        return ids[:0], ids[:0]
    gap = np.full(len(ids), math.nan)
    return np.column_stack([ids, ids, gap]).ravel(), np.column_stack([low, high, gap]).ravel()


class PyqtgraphPlots(QtWidgets.QWidget):  # type: ignore[misc]
    """Returns above, coverage and gamma below; one item for each curve. Points are appended."""

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
        self._make_items(pyqtgraph)

    def _make_items(self, pyqtgraph: Any) -> None:
        pen = pyqtgraph.mkPen

        def line(plot: Any, name: str | None = None, **style: Any) -> Any:
            item = pyqtgraph.PlotCurveItem(name=name, **style)
            plot.addItem(item)
            return item

        def scatter(name: str, **style: Any) -> Any:
            item = pyqtgraph.ScatterPlotItem(name=name, **style)
            self.returns.addItem(item)
            return item

        self._strokes = line(self.returns, pen=pen("#C4C4C4"), connect="finite")
        self._bounds = scatter("bound", symbol="t1", size=4, pen=None, brush=BOUND)
        self._best = line(self.returns, "best so far", pen=pen(BEST, width=2))
        self._average = line(self.returns, "average", pen=pen(AVERAGE, width=2))
        self.points = {}
        for outcome, marker in MARKERS.items():
            color = OUTCOME_COLORS[outcome]
            outline = pen(color, width=1 if marker == "o" else 2)
            self.points[outcome] = scatter(outcome, symbol=marker, size=8, pen=outline, brush=color)
        self._coverage = line(self.caution, pen=pen(COVERAGE, width=2))
        self._gamma = line(self.caution, pen=pen(GAMMA, width=2))

    def show_series(self, series: Series) -> None:
        self._strokes.setData(*broken(*series.bounds))
        self._best.setData(*steps(*series.best))
        self._average.setData(*thinned(*series.average))
        self._coverage.setData(*thinned(*series.coverage))
        self._gamma.setData(*steps(*series.gamma))
        limits = y_range(series)
        _append(self._bounds, *series.bounds[:2])
        for outcome, item in self.points.items():
            _append(item, *visible(series.points[outcome], limits))
        view = self.returns.getViewBox()
        if any(view.autoRangeEnabled()):  # at first, and after a click on the plot's "A"
            self._follows = True
        if self._follows and limits:  # both axes at once, which is one painting less than pyqtgraph's own way
            view.setRange(xRange=x_range(series), yRange=limits, padding=0.0)
        for plot in (self.returns, self.caution):  # now, instead of during a first painting that asks for a second
            plot.scene().prepareForPaint()

    def _on_zoom(self, *_: object) -> None:
        self._follows = False  # leave a reader who has zoomed alone


def _append(item: Any, x: Array, y: Array) -> None:
    """Show these points; of those that are shown already none is made again."""
    old_x, old_y = item.getData()
    known = len(old_x)
    if len(x) >= known and np.array_equal(x[:known], old_x) and np.array_equal(y[:known], old_y):
        if len(x) > known:
            item.addPoints(x=x[known:], y=y[known:])
    else:
        item.setData(x=x, y=y)


def thinned(x: Array, y: Array) -> Curve:
    """At most MANY to twice as many points of a smooth curve, the newest among them."""
    every = max(1, len(x) // MANY)
    return x[::-every][::-1], y[::-every][::-1]


def steps(x: Array, y: Array) -> Curve:
    """The corners of a staircase through the points; a level stretch is one stroke, however many points lie on it."""
    if len(x) > 2:
        keep = np.r_[True, np.diff(y) != 0.0]
        keep[-1] = True
        x, y = x[keep], y[keep]
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


class MatplotlibPlots(QtWidgets.QWidget):  # type: ignore[misc]
    """The same with matplotlib; slower, but on every ROS machine."""

    def __init__(self) -> None:
        super().__init__()
        from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
        from matplotlib.figure import Figure

        figure: Any = Figure(figsize=(6.0, 5.0))
        figure.subplots_adjust(left=0.11, right=0.98, top=0.98, bottom=0.09, hspace=0.08)
        self.canvas: Any = FigureCanvasQTAgg(figure)  # type: ignore[no-untyped-call]
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
        (self._gamma,) = self.caution.plot([], [], color=GAMMA, drawstyle="steps-post", label="gamma")

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
