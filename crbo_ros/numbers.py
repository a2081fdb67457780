"""Numbers and times for people: the same in the window, the report, the terminal."""

from __future__ import annotations

import math

UNKNOWN = "–"


def number(value: float | None) -> str:
    """Four digits; a dash for what is not known."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else UNKNOWN


def percent(share: float) -> str:
    return f"{100.0 * share:.1f} %" if math.isfinite(share) else UNKNOWN


def minutes(seconds: float) -> str:
    """Seconds as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if math.isfinite(seconds) else "--:--"


def bar(done: int, total: int, width: int = 20) -> str:
    """A bar of `width` characters."""
    filled = min(width, round(width * done / total)) if total else 0
    return "█" * filled + "·" * (width - filled)
