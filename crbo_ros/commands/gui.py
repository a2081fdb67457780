"""`./crbo gui`: the live monitor as a window of its own (the same as rqt's plugin "CRBO Monitor").

    ./crbo gui                             # the first namespace in which an optimizer publishes
    ./crbo gui --namespace furuta

It may be started before or after the nodes. Closing it, or Ctrl-C here, changes nothing about the run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from crbo_ros.errors import CrboError, InvalidInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", default="", help="ROS namespace; empty: automatic, / is the root")
    parser.add_argument("--screenshot", type=Path, metavar="FILE", help="write a picture of the window when it closes")
    parser.add_argument("--seconds", type=float, default=0.0, help="close by itself after so many seconds")
    parser.add_argument("--size", default="1200x760", metavar="WxH", help="size of the window (default: 1200x760)")


def run(args: argparse.Namespace) -> int:
    _find_screen(unattended=bool(args.screenshot and args.seconds > 0.0))
    try:
        width, height = (int(part) for part in args.size.split("x"))
    except ValueError:
        raise InvalidInput(f"--size: {args.size!r} is not of the form 1200x760") from None
    # Before Qt is there: it swallows a KeyboardInterrupt that comes in one of its callbacks.
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    from crbo_ros.rqt.client import RosClient
    from crbo_ros.rqt.qt import QtCore, QtWidgets
    from crbo_ros.rqt.widget import MonitorWidget

    application = QtWidgets.QApplication.instance() or QtWidgets.QApplication(["crbo gui"])
    with RosClient(args.namespace) as client:
        window = MonitorWidget(client, args.namespace)
        window.resize(width, height)
        window.show()
        print("the monitor is open; closing it changes nothing about the run", flush=True)
        look = QtCore.QTimer()
        look.timeout.connect(lambda: application.quit() if ended.is_set() else None)
        look.start(100)
        if args.seconds > 0.0:
            QtCore.QTimer.singleShot(int(1000 * args.seconds), application.quit)
        application.exec()
        window.shutdown()
        if args.screenshot and not window.grab().save(str(args.screenshot)):
            raise InvalidInput(f"--screenshot: {args.screenshot} could not be written")
    return 0


def _find_screen(unattended: bool) -> None:
    """Qt aborts the process where there is no screen; say so instead. A picture can be made without one."""
    if not sys.platform.startswith("linux") or os.environ.get("QT_QPA_PLATFORM"):
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    if not unattended:
        raise CrboError(
            "there is no screen here (DISPLAY is not set): log in with ssh -X, start this on a desktop in the same "
            "ROS domain, or make a picture with --seconds 10 --screenshot monitor.png"
        )
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
