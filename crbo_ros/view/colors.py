"""The colours of outcomes, curves and states, the same everywhere (Okabe-Ito: told apart by colour-blind readers)."""

OUTCOME_COLORS = {
    "completed": "#0072B2",  # blue
    "terminated": "#E69F00",  # orange
    "vetoed": "#D81B60",  # magenta
    "stopped": "#777777",  # grey
    "failed": "#000000",
    "returned": "#999999",
    "expired": "#AAAAAA",
    "pending": "#56B4E9",  # light blue
}
BEST, AVERAGE, BOUND, GAMMA, COVERAGE = "#009E73", "#CC79A7", "#8A8A8A", "#D55E00", "#0072B2"
GOOD, ALARM, ATTENTION, NEUTRAL = "#1B7F4B", "#C2185B", "#B26A00", "#666666"  # of states in words
