"""python -m crbo_ros.nodes optimizer|safety_monitor|episode_runner [--ros-args ...]"""

import signal
import sys
from importlib import import_module


def start(name: str) -> int:
    """Run a node. A signal that comes while it is still being loaded ends it quietly: nothing has moved yet."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    return int(import_module(f"crbo_ros.nodes.{name}").main())


if __name__ == "__main__":
    sys.exit(start(sys.argv.pop(1)))
