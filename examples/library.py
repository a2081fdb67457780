"""The optimizer as a plain Python library: NumPy and SciPy, no ROS. Four gains of a made-up controller."""

from typing import Any

import numpy as np

from crbo_ros.core import CRBO, Space


def episode(theta: Any) -> Any:
    """Stands for your robot: one run with these gains, and how well it went."""
    kp, ki, kd, delay = np.log10(theta / [8.0, 1.0, 0.5, 0.05])
    return 1.0 - 0.4 * kp**2 - 0.2 * (ki - 0.3 * kp) ** 2 - 0.3 * kd**2 - 0.2 * delay**2


space = Space([0.1, 0.01, 0.01, 0.001], [100.0, 100.0, 10.0, 1.0], log=[True] * 4, names=["kp", "ki", "kd", "delay"])
optimizer = CRBO(space, theta_0=[1.0, 0.1, 0.05, 0.2], gamma=0.5, seed=1)
for _ in range(40):
    proposal = optimizer.ask()  # close to what is known: proposal.worst_case bounds how bad it may be
    optimizer.tell(proposal.id, episode(proposal.theta))  # or optimizer.fail(proposal.id, "why")
best = optimizer.best()
assert best is not None  # (None before the first return)
print(f"start {episode(optimizer.theta_0):.3f}, best {best.observed:.3f} at {best.theta.round(3)}")
