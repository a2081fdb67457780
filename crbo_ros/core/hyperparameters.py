"""Priors on hyperparameters: log density in the parameter itself (as in gpytorch), derivative by its logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
