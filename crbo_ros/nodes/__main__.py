"""python -m crbo_ros.nodes optimizer|safety_monitor|episode_runner [--ros-args ...]"""

import signal
import sys
from importlib import import_module

from crbo_ros.nodes.way_out import leave_now


def start(name: str) -> None:
    """Run a node, and end the process. A signal while it is still being loaded ends it quietly: nothing has moved."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    leave_now(int(import_module(f"crbo_ros.nodes.{name}").main()))


if __name__ == "__main__":
    start(sys.argv.pop(1))
