"""Thin ROS shells around the core, one file each."""

import os
import signal

from crbo_ros.protocol.proofs import KEY as KEY

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # before NumPy is loaded: threads make problems of this size slower

# What whoever starts a graph tells its nodes by environment.
PARENT = "CRBO_PARENT"  # the process that a node must not outlive, and that waits for the runners' end

# Exit codes.
ENDED = 0  # as asked: a signal, the end of the run
REFUSED = 1  # bad input; starting it again would not help
CRASHED = 2  # something unexpected; the stores are made for starting again
LEFT_BADLY = 3  # a step of its way out failed: look at the plant
STUCK = -signal.SIGALRM  # the plant was safe and the stores were closed, but what came after took too long


def died(code: int) -> bool:
    """Whether a process with this exit code ended by accident: killed by a signal, or by an error of its own."""
    return code == CRASHED or (code < 0 and code != STUCK)
