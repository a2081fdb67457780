"""Hyperparameters: priors, and what each preset assumes before it has seen a return.

A prior's log density is one in the parameter itself (as in gpytorch), its derivative one by the parameter's logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Gamma:
    """Shape and rate, as in the paper's appendix: p(v) = rate^shape / Gamma(shape) v^(shape - 1) exp(-rate v)."""

    shape: float
    rate: float

    def log_density(self, v: float) -> tuple[float, float]:
        """(log p(v), d log p / d log v)."""
        value = self.shape * math.log(self.rate) - math.lgamma(self.shape) + (self.shape - 1.0) * math.log(v)
        return value - self.rate * v, (self.shape - 1.0) - self.rate * v


@dataclass(frozen=True)
class LogNormal:
    """log v ~ N(log median, spread^2); as a density over log v, so that its mode is its median."""

    median: float
    spread: float

    def log_density(self, v: float) -> tuple[float, float]:
        z = (math.log(v) - math.log(self.median)) / self.spread
        return -0.5 * z * z - math.log(self.spread) - 0.5 * math.log(2.0 * math.pi), -z / self.spread


@dataclass(frozen=True)
class Flat:
    """No preference within the bounds."""

    def log_density(self, v: float) -> tuple[float, float]:
        return 0.0, 0.0


Prior = Gamma | LogNormal | Flat


@dataclass(frozen=True)
class Hyperparameters:
    """What the fit may do: a prior, bounds and a start value for each of lengthscale, signal and noise variance."""

    lengthscale: Prior = field(default_factory=Flat)
    signal: Prior = field(default_factory=Flat)
    noise: Prior = field(default_factory=Flat)
    lengthscale_bounds: tuple[float, float] = (0.01, 10.0)
    signal_bounds: tuple[float, float] = (1e-4, 1e4)
    noise_bounds: tuple[float, float] = (1e-8, 1e2)
    start: tuple[float, float, float] = (0.2, 1.0, 1e-2)  # l, sf2, sn2


def paper_hyperparameters(dim: int) -> Hyperparameters:
    """The appendix: Gamma(2, 0.15) signal, Gamma(1.1, 0.05) noise, Gamma(3, 6) lengthscale, on outputs of unit
    deviation.

    Bounds and start values are those that the authors used without naming them in the paper.
    """
    return Hyperparameters(
        Gamma(3.0, 6.0),
        Gamma(2.0, 0.15),
        Gamma(1.1, 0.05),
        lengthscale_bounds=(0.05, 0.5),
        signal_bounds=(1e-4, 1e3),
        noise_bounds=(1e-6, 1e2),
        start=(0.1, 1.0, 0.0025),
    )


def default_hyperparameters(dim: int) -> Hyperparameters:
    """Ours: priors that hold the model together while there are few returns, and let go later.

    - Lengthscale: distances in the unit box grow with sqrt(d), so its prior does: median 0.067 sqrt(d), a factor e^0.4
      either way, never above 0.5 (as the authors do: in many dimensions a longer one only makes the steps larger).
    - Signal variance: that of the returns, a factor of 1.6 either way.
    - Noise: a thousandth of the returns' variance, but a factor of 50 either way is within two deviations. The paper's
      Gamma(1.1, 0.05), mean 22, lets noise explain everything that a too long lengthscale does not.
    """
    median = 0.067 * math.sqrt(dim)
    longest = min(4.0 * median, 0.5)
    return Hyperparameters(
        LogNormal(median, 0.4),
        LogNormal(1.0, 0.5),
        LogNormal(1e-3, 2.0),
        lengthscale_bounds=(min(0.25 * median, 0.1), longest),
        signal_bounds=(1e-2, 1e3),
        noise_bounds=(1e-7, 1e1),
        start=(min(median, longest), 1.0, 1e-3),
    )


def make_hyperparameters(preset: str, dim: int, fixed: tuple[float, float, float] | None = None) -> Hyperparameters:
    """The preset's, or with the user's own values in the place of the start values."""
    hyper = paper_hyperparameters(dim) if preset == "paper" else default_hyperparameters(dim)
    return hyper if fixed is None else replace(hyper, start=fixed)
