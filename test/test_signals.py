"""A signal ends a wait, whatever the main thread is doing when it comes."""

import subprocess
import sys

# At the n-th step of the wait, for each n, as if the signal came just then.
AT_EVERY_STEP = """
import signal, sys
from crbo_ros.signals import Signals

def wait(n):
    signals, steps = Signals(), 0
    def trace(frame, event, argument):
        nonlocal steps
        steps += 1
        if steps == n:
            signal.raise_signal(signal.SIGTERM)
        return trace
    sys.settrace(trace)
    signals.wait(0.01)
    sys.settrace(None)
    assert signals.wait(0.01) == (n <= steps), n
    return n <= steps

n = 1
while wait(n):
    n += 1
assert n > 5, n
print("never hung")
"""


def test_a_signal_that_comes_at_any_step_of_the_wait_ends_it() -> None:
    """With threading.Event and set() in the handler this hangs: the lock is held by the thread that is interrupted."""
    done = subprocess.run([sys.executable, "-c", AT_EVERY_STEP], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "never hung", done.stderr
