"""The clock on which everybody counts liveness, approvals and leases: their own, and never told to anybody."""

from __future__ import annotations

import time


def boottime() -> float:
    """s on a clock that nobody can set and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
