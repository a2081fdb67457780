"""The curves of a Series: with pyqtgraph where it is installed (fast), else with matplotlib."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crbo_ros.errors import MissingDependency
from crbo_ros.rqt.qt import Qt, QtWidgets, grounds, readable, visible_color
from crbo_ros.view.colors import AVERAGE, BEST, BOUND, COVERAGE, GAMMA, OUTCOME_COLORS
from crbo_ros.view.run_view import Array, Curve, Series
from crbo_ros.view.scale import visible, x_range, y_range

LEGEND = (
    ("● completed", OUTCOME_COLORS["completed"]), ("● terminated", OUTCOME_COLORS["terminated"]),
    ("✖ vetoed", OUTCOME_COLORS["vetoed"]), ("▬ best so far", BEST), ("▬ average", AVERAGE),
    ("┅ threshold", OUTCOME_COLORS["vetoed"]), ("▲ bound", BOUND),
)  # fmt: skip
MARKERS = {"completed": "o", "terminated": "o", "vetoed": "x"}
SMALL = 4  # px: a point where there are many
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


def _word(word: str, color: str) -> str:
    return f'<span style="color: {readable(color).name()}">{word.replace(" ", "&nbsp;")}</span>'


def configure(pyqtgraph: Any) -> None:
    """The desktop's own colours, light or dark."""
    text = QtWidgets.QApplication.palette().text().color().name()
    pyqtgraph.setConfigOptions(background=grounds()[0], foreground=text, antialias=False)


def legend_style() -> dict[str, Any]:
    """A legend that what lies below it does not disturb."""
    return {"labelTextSize": "8pt", "brush": grounds()[0] + "dd"}


def matplotlib_figure(**size: Any) -> tuple[Any, Any]:
    """(figure, its canvas), in the desktop's own colours."""
    from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(facecolor=grounds()[0], **size)
    return figure, FigureCanvasQTAgg(figure)  # type: ignore[no-untyped-call]


def dress(axes: Any) -> None:
    """Axes of matplotlib's in the desktop's own colours, with a grid."""
    text = QtWidgets.QApplication.palette().text().color().name()
    axes.set_facecolor(grounds()[0])
    axes.tick_params(colors=text, which="both")
    for part in (axes.xaxis.label, axes.yaxis.label, *axes.spines.values()):
        part.set_color(text)
    axes.grid(alpha=0.2, color=text)


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

        configure(pyqtgraph)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        self.returns, self.caution = pyqtgraph.PlotWidget(), pyqtgraph.PlotWidget()
        self.legend = QtWidgets.QLabel("&nbsp; ".join(_word(*entry) for entry in LEGEND))  # where it hides nothing
        self.legend.setWordWrap(True)
        self.legend.setStyleSheet("font-size: 8pt")
        layout.addWidget(self.legend)
        layout.addWidget(self.returns, 3)
        layout.addWidget(self.caution, 2)
        self.returns.setLabel("left", "return")
        words = (("coverage", COVERAGE), ("gamma", GAMMA))  # the label is the legend
        self.caution.setLabel("left", ", ".join(_word(*word) for word in words))
        self.caution.setLabel("bottom", "proposal")
        self.caution.setYRange(0.0, 1.05, padding=0.0)
        self.caution.setXLink(self.returns)
        for plot in (self.returns, self.caution):
            left, bottom = (plot.getPlotItem().getAxis(side) for side in ("left", "bottom"))
            left.setWidth(60)  # both plots begin at the same x
            for axis in (left, bottom):
                axis.enableAutoSIPrefix(False)  # (a proposal is no thousandth)
            bottom.setHeight(40 if plot is self.caution else 22)
            for axis in (left, bottom):
                # of fixed size: otherwise every new number is a new layout and a second painting
                axis.setStyle(autoExpandTextSpace=False, autoReduceTextSpace=False)
        self._follows = True
        self.returns.getViewBox().sigRangeChangedManually.connect(self._on_zoom)
        self._make_items(pyqtgraph)

    def _make_items(self, pyqtgraph: Any) -> None:
        def pen(color: str, **style: Any) -> Any:
            return pyqtgraph.mkPen(visible_color(color), **style)

        def line(plot: Any, **style: Any) -> Any:
            item = pyqtgraph.PlotCurveItem(**style)
            plot.addItem(item)
            return item

        def scatter(**style: Any) -> Any:
            item = pyqtgraph.ScatterPlotItem(**style)
            self.returns.addItem(item)
            return item

        self._strokes = line(self.returns, pen=pyqtgraph.mkPen(BOUND + "80"), connect="finite")
        self._bounds = scatter(symbol="t1", size=4, pen=None, brush=visible_color(BOUND))
        self._best = line(self.returns, pen=pen(BEST, width=2))
        self._average = line(self.returns, pen=pen(AVERAGE, width=2))
        dotted = pen(OUTCOME_COLORS["vetoed"], width=2, style=Qt.PenStyle.DotLine)
        self.threshold = line(self.returns, pen=dotted)
        self.points = {}
        for outcome, marker in MARKERS.items():
            color = visible_color(OUTCOME_COLORS[outcome])
            outline = pen(color, width=1 if marker == "o" else 2)
            self.points[outcome] = scatter(symbol=marker, size=8, pen=outline, brush=color)
        self._coverage = line(self.caution, pen=pen(COVERAGE, width=2))
        self._gamma = line(self.caution, pen=pen(GAMMA, width=2))

    def show_series(self, series: Series) -> None:
        self._strokes.setData(*broken(*series.bounds))
        self._best.setData(*steps(*series.best))
        self._average.setData(*thinned(*series.average))
        self._coverage.setData(*thinned(*series.coverage))
        self._gamma.setData(*steps(*series.gamma))
        self.threshold.setData(*steps(*series.threshold))
        limits = y_range(series)
        _append(self._bounds, *series.bounds[:2])
        for outcome, item in self.points.items():
            _append(item, *visible(series.points[outcome], limits))
            if len(series.best[0]) > MANY and MARKERS[outcome] == "o" and item.opts["size"] > SMALL:
                item.setSize(SMALL)
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
        figure, self.canvas = matplotlib_figure(figsize=(6.0, 5.0))
        figure.subplots_adjust(left=0.11, right=0.98, top=0.98, bottom=0.09, hspace=0.08)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.canvas)
        self.returns, self.caution = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        self._make_lines()
        self.returns.set_ylabel("return")
        self.caution.set(ylabel="coverage, gamma", xlabel="proposal", ylim=(0.0, 1.05))
        for axes in (self.returns, self.caution):
            dress(axes)
            text = axes.xaxis.label.get_color()
            axes.legend(loc="lower right", fontsize=7, ncols=2, facecolor=grounds()[0], labelcolor=text)

    def _make_lines(self) -> None:
        plot = self.returns.plot
        (self._strokes,) = plot([], [], color=visible_color(BOUND), linewidth=0.6, alpha=0.5)
        (self._bounds,) = plot([], [], "_", color=visible_color(BOUND), markersize=5, label="bound")
        (self._best,) = plot([], [], color=visible_color(BEST), drawstyle="steps-post", label="best so far")
        (self._average,) = plot([], [], color=visible_color(AVERAGE), label="average")
        dotted = {"color": visible_color(OUTCOME_COLORS["vetoed"]), "linestyle": ":", "drawstyle": "steps-post"}
        (self.threshold,) = plot([], [], label="threshold", **dotted)
        self.points = {
            outcome: plot([], [], marker, color=visible_color(OUTCOME_COLORS[outcome]), markersize=5, label=outcome)[0]
            for outcome, marker in MARKERS.items()
        }
        (self._coverage,) = self.caution.plot([], [], color=visible_color(COVERAGE), label="coverage of the bound")
        (self._gamma,) = self.caution.plot([], [], color=visible_color(GAMMA), drawstyle="steps-post", label="gamma")

    def show_series(self, series: Series) -> None:
        self._strokes.set_data(*broken(*series.bounds))
        self._bounds.set_data(*series.bounds[:2])
        self._best.set_data(*series.best)
        self._average.set_data(*series.average)
        self.threshold.set_data(*series.threshold)
        self._coverage.set_data(*series.coverage)
        self._gamma.set_data(*series.gamma)
        limits = y_range(series)
        for outcome, line in self.points.items():
            line.set_data(*visible(series.points[outcome], limits))
        self.returns.set_xlim(*x_range(series))
        if limits:
            self.returns.set_ylim(*limits)
        self.canvas.draw_idle()
