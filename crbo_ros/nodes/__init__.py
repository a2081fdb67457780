"""Thin ROS shells around the core, one file each."""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # before NumPy is loaded: threads make problems of this size slower

# The process that a node must not outlive; known from the start, should it die while a node loads.
PARENT = "CRBO_PARENT"
# A secret of the monitor and the runners of one graph, given by whoever starts it: approvals are signed with it.
KEY = "CRBO_KEY"
