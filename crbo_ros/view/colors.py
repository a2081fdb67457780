"""The colours of outcomes, curves and states, the same everywhere, and what keeps them legible on any ground.

After Okabe and Ito: colour-blind readers tell them apart.
"""

from __future__ import annotations

import colorsys
from functools import cache

OUTCOME_COLORS = {
    "completed": "#0072B2",  # blue
    "terminated": "#B87400",  # orange
    "vetoed": "#D81B60",  # magenta
    "stopped": "#777777",  # grey
    "failed": "#000000",
    "returned": "#858585",
    "expired": "#919191",
    "pending": "#2F8FCB",  # light blue
}
BEST, AVERAGE, BOUND, GAMMA, COVERAGE = "#009E73", "#B65C8F", "#8A8A8A", "#D55E00", "#0072B2"
GOOD, ALARM, ATTENTION, NEUTRAL = "#1B7F4B", "#C2185B", "#B26A00", "#666666"  # of states in words
START = "#333333"  # theta_0, wherever another policy is drawn beside it
CURVES = (
    COVERAGE,
    OUTCOME_COLORS["terminated"],
    BEST,
    OUTCOME_COLORS["vetoed"],
    AVERAGE,
    START,
    BOUND,
    GAMMA,
)  # in turn
WORDS, LINES = 4.5, 3.0  # WCAG 2, level AA: contrast of text, and of what is drawn, with its ground


def contrast(a: str, b: str) -> float:
    """The ratio of two colours' luminances (WCAG 2), from 1 to 21."""
    low, high = sorted(_luminance(color) for color in (a, b))
    return (high + 0.05) / (low + 0.05)


@cache
def legible(color: str, ground: str = "#FFFFFF", ratio: float = WORDS) -> str:
    """The colour, no darker or lighter than it takes to stand out from the ground by that ratio."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*_parts(color))
    step = 0.01 if _luminance(ground) < 0.18 else -0.01  # (as far from black as from white, by the ratio)
    while contrast(color, ground) < ratio and 0.0 <= lightness + step <= 1.0:
        lightness += step
        parts = colorsys.hls_to_rgb(hue, lightness, saturation)
        color = "#" + "".join(f"{round(255 * part):02X}" for part in parts)
    return color


def _parts(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[i : i + 2], 16) / 255.0 for i in (1, 3, 5))
    return red, green, blue


def _luminance(color: str) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _parts(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
