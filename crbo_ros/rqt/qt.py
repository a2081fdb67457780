"""Qt, whichever is here: rqt's own binding inside rqt, PySide6 in a window of our own. The one place that knows.

Enumerations are written in full (Qt.AlignmentFlag.AlignLeft), which PyQt5, PyQt6, PySide2 and PySide6 all understand.
"""

from __future__ import annotations

import sys

from crbo_ros.errors import MissingDependency

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

__all__ = ["Qt", "QtCore", "QtGui", "QtWidgets"]
