"""Optimize a function of two parameters and watch the confidence region grow: writes region.png."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from crbo_ros.core import CRBO, Space
from crbo_ros.core.region import ConfidenceRegion


def episode(x: Any, y: Any) -> Any:
    """Stands in for a robot's return: a low hill at the upper left, a high one at the lower right."""
    return 0.7 * np.exp(-6 * ((x + 0.4) ** 2 + (y - 0.4) ** 2)) + np.exp(-4 * ((x - 0.4) ** 2 + (y + 0.3) ** 2))


space = Space([-1, -1], [1, 1])
optimizer = CRBO(space, theta_0=[-0.55, 0.0], seed=1)
figure = Figure(figsize=(12, 3.2), layout="constrained")
axes = dict(zip((3, 10, 20, 50), figure.subplots(1, 4), strict=True))
grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 120)] * 2), axis=-1).reshape(-1, 2)
for n in range(1, 52):
    proposal = optimizer.ask()  # fits the model to the n - 1 returns so far
    if n - 1 in axes:
        region = ConfidenceRegion(optimizer.surrogate, proposal.gamma).contains(space.to_unit(grid))
        axis, thetas = axes[n - 1], np.array([trial.proposal.theta for trial in optimizer.trials])
        axis.contourf(*grid.T.reshape(2, 120, 120), episode(*grid.T).reshape(120, 120), 20, cmap="Greys")
        axis.contourf(*grid.T.reshape(2, 120, 120), region.reshape(120, 120), [0.5, 1.5], colors=["C0"], alpha=0.35)
        axis.plot(*thetas.T, "kx", ms=4)
        axis.plot(*thetas[0], "rx", ms=8, mew=2)
        best = optimizer.best()
        axis.set_title(f"n = {n - 1}, best {best.mean if best else math.nan:.3f}")
    optimizer.tell(proposal.id, episode(*proposal.theta))
figure.savefig("region.png", dpi=110)
best = optimizer.best()
assert best is not None  # (None before the first return)
print("best policy", best.theta, "return", best.observed)
