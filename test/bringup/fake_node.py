"""A process that behaves like a node on its way out: python fake_node.py NAME LEDGER SECONDS CODE.

It writes when it is up, when its signal comes and when it leaves; it needs SECONDS to leave.
"""

import json
import os
import queue
import signal
import sys
import time

name, ledger, seconds, code = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])


def write(event: str) -> None:
    line = {"name": name, "event": event, "time": time.monotonic(), "pid": os.getpid()}
    line |= {key: os.environ.get(key) for key in ("CRBO_KEY", "CRBO_PARENT")}
    with open(ledger, "a") as file:
        file.write(json.dumps(line) + "\n")


signals: queue.SimpleQueue[int] = queue.SimpleQueue()
signal.signal(signal.SIGINT, lambda number, frame: signals.put(number))
write("up")
signals.get()
write("signal")
time.sleep(seconds)
write("out")
sys.exit(code)
