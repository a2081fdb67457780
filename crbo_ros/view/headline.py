"""The run in one line."""

from __future__ import annotations

import math

from crbo_ros.numbers import number, percent
from crbo_ros.view.run_view import RunView


def headline(run: RunView) -> str:
    """The run in one line: in the window, the report and the terminal."""
    s = run.state
    if s is None:
        return ""
    coverage = run.series().coverage[1]
    parts = [
        f"{run.name}: {s.method} on {s.task}, {s.dim} parameters",
        f"episode {s.completed}{f'/{s.budget}' if s.budget else ''}",
        f"best {number(s.best_mean)} (proposal {s.best_id})" if s.best_id >= 0 else "no return yet",
        f"theta_0 {number(s.start_return)}, average {number(s.average_return)}" if s.completed else "",
        f"gamma {number(s.gamma_effective)}" if math.isfinite(s.gamma_effective) else "",
        f"bound held {percent(coverage[-1])}" if len(coverage) else "",
    ]
    return "  ·  ".join(part for part in parts if part)
