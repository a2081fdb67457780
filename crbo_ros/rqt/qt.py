"""Qt, whichever is here: rqt's own binding inside rqt, PySide6 in a window of our own. The one place that knows.

Enumerations are written in full (Qt.AlignmentFlag.AlignLeft), which PyQt5, PyQt6, PySide2 and PySide6 all understand.
"""

from __future__ import annotations

import sys

from crbo_ros.errors import MissingDependency
from crbo_ros.view.colors import LINES, legible

HELP = (
    "Qt cannot be loaded ({}). Without rqt: pip install PySide6-Essentials pyqtgraph. Its system libraries on Debian "
    "and Ubuntu: apt install libegl1 libgl1 libxkbcommon0 libdbus-1-3 libfontconfig1 libxcb-cursor0"
)

if "python_qt_binding" in sys.modules:
    from python_qt_binding import QtCore, QtGui, QtWidgets
else:
    try:
        from PySide6 import QtCore, QtGui, QtWidgets
    except ImportError as missing:
        try:
            from python_qt_binding import QtCore, QtGui, QtWidgets
        except ImportError:
            raise MissingDependency(HELP.format(missing)) from None

Qt = QtCore.Qt


def grounds() -> tuple[str, str]:
    """What is drawn on (tables, plots) and what words stand on, as this desktop paints them."""
    palette = QtWidgets.QApplication.palette()
    return palette.base().color().name(), palette.window().color().name()


def readable(color: str) -> QtGui.QColor:
    """The colour as words can be read in it, wherever they stand in the window."""
    for ground in grounds():
        color = legible(color, ground)
    return QtGui.QColor(color)


def visible_color(color: str) -> str:
    """The colour as a line or a point can be seen in a plot."""
    return legible(color, grounds()[0], LINES)


__all__ = ["Qt", "QtCore", "QtGui", "QtWidgets", "grounds", "readable", "visible_color"]
