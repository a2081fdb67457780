"""HCI-GIBO, local search that steps when *improvement* is probable (He, von Rohr, Baumann, Xiang, Trimpe 2025).

As GIBO (gibo.py), with another rule for when to step. J is taken to be L-smooth, so that a step of length eta along v
improves if the slope v^T grad J exceeds L eta |g| / 2. The belief about that slope is N(|g|, v^T C v); it steps when

    P(v^T grad J > L eta |g| / 2) = Phi((1 - L eta / 2) |g| / sqrt(v^T C v)) > alpha,   L = sigma_f^2 / l,

or after d samples; then x moves by eta lengthscales. Samples lie within delta of x in each coordinate. alpha = 0.95,
eta = 0.25, delta = 0.2, the authors' settings. (Their code hands the variance v^T C v to a normal law as its standard
deviation; here it is the formula.) Where L eta >= 2 no slope is enough, and every step comes after d samples. A test
compares the probability with draws of the slope; with L = 0 it is gibo.py's.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from scipy.special import ndtr

from crbo_ros.core.settings import check_number
from crbo_ros.core.space import Space
from crbo_ros.methods.gibo import GIBO


class HciGIBO(GIBO):
    """Settings: alpha (probability of improvement at which to step), eta (step in lengthscales), delta (reach of
    samples in the unit box)."""

    name = "hci_gibo"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        alpha: float = 0.95,
        eta: float = 0.25,
        delta: float = 0.2,
    ) -> None:
        super().__init__(space, theta_0, seed=seed, alpha=alpha, rate=check_number("eta", eta, 0.0))
        self.reach = check_number("delta", delta, 0.0, 1.0)

    @property
    def smoothness(self) -> float:
        """L."""
        return self.surrogate.signal_variance / float(self.surrogate.lengthscales[0])

    def probability(self, slope: float, sigma: float) -> float:
        return float(ndtr((1.0 - 0.5 * self.smoothness * self.rate) * slope / sigma))

    def report(self) -> dict[str, Any]:
        return {**super().report(), "smoothness": self.smoothness}
