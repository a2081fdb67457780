"""`./crbo monitor`: the live monitor as a window of its own (the same as rqt's plugin "CRBO Monitor").

    ./crbo monitor                             # the first namespace in which an optimizer publishes
    ./crbo monitor --namespace furuta

It may be started before or after the nodes. Closing it, or Ctrl-C here, changes nothing about the run.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", default="", help="ROS namespace; empty: automatic, / is the root")
    parser.add_argument("--screenshot", type=Path, metavar="FILE", help="write a picture of the window when it closes")
    parser.add_argument("--seconds", type=float, default=0.0, help="close by itself after so many seconds")
    parser.add_argument("--size", default="1200x760", metavar="WxH", help="size of the window (default: 1200x760)")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.errors import InvalidInput
    from crbo_ros.rqt.qt import QtCore, QtWidgets

    try:
        width, height = (int(part) for part in args.size.split("x"))
    except ValueError:
        raise InvalidInput(f"--size: {args.size!r} is not of the form 1200x760") from None
    from crbo_ros.rqt.client import RosClient
    from crbo_ros.rqt.widget import MonitorWidget

    application = QtWidgets.QApplication.instance() or QtWidgets.QApplication(["crbo monitor"])
    with RosClient(args.namespace) as client:
        window = MonitorWidget(client, args.namespace)
        window.resize(width, height)
        # Python handles signals between its own instructions; the widget's timer sees to it that there are some.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: window.close())
        window.show()
        if args.seconds > 0.0:
            QtCore.QTimer.singleShot(int(1000 * args.seconds), window.close)
        application.exec()
        window.shutdown()
        if args.screenshot and not window.grab().save(str(args.screenshot)):
            raise InvalidInput(f"--screenshot: {args.screenshot} could not be written")
    return 0
