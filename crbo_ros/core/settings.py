"""Presets: `paper` (the paper's settings) and `default` (ours), and the settings' checks.

Where the two differ, and why:

1. Hyperparameters are fitted to returns minus their mean (and the best policy is chosen so); only the prediction is
   centred on the best return. Max-centred returns all lie below zero, and a zero-mean process explains such an offset
   by a long lengthscale and a large signal: the region then grows past what the data support. This alone decides
   whether a moderate gamma works in 5-D.
2. Priors that scale with the dimension and do not let noise explain everything (`default_hyperparameters`).
3. The region does not close under noise (`confidence_region`).
4. The initial directions are mutually orthogonal.
5. In many dimensions the initial design is short, and early steps go a little sideways instead (`proposal.sideways`):
   they learn a new direction each on their way up, where the paper spends ceil(sqrt d) episodes at the start's level.
6. Every fifth fit has a second start with much noise: a fit that only follows its last result never finds it.
7. Where UCB would evaluate the same optimum over and over, every fifth proposal explores the region's edge instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from crbo_ros.core.acquisition import NAMES
from crbo_ros.core.gaussian_process import CENTERINGS, Hyperparameters
from crbo_ros.core.hyperparameters import Gamma, LogNormal
from crbo_ros.core.kernels import Array, kernel
from crbo_ros.errors import InvalidInput


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


@dataclass(frozen=True)
class Settings:
    """Everything that a run of CRBO depends on besides seed and returns. Distances are in the unit box."""

    preset: str = "default"
    gamma: float = 0.5  # confidence parameter, 0 < gamma <= 1 (1: standard BO in the box)
    beta: float = 2.0  # UCB: mean + beta sigma
    kernel: str = "matern52"
    ard: bool = False
    acquisition: str | Callable[[Array, Array], Array] = "ucb"
    centering: str = "max"
    scaling: bool = True  # divide the centred returns by their standard deviation
    second_start: bool = True  # every fifth fit also starts from much noise; the better one is kept
    fit_around_mean: bool = True  # fit hyperparameters to mean-centred returns, whatever the centring of the prediction
    n_init: int | None = None  # size of the initial design, theta_0 included; None: ceil(sqrt(d)), with sideways <= 4
    orthogonal_init: bool = True
    compensate_noise: bool = False  # widen the region by what noise leaves at the best policy: see confidence_region
    lipschitz: float | None = None  # the user's Lipschitz constant, return per unit of the unit box
    scale: float | None = None  # typical spread of the returns, for the first worst cases
    j_min: float | None = None  # no proposal whose worst case is below this
    gamma_schedule: float = 0.0  # gamma_n = 1 - (1 - gamma) exp(-gamma_schedule n): grows towards 1
    samples: int | None = None  # hit-and-run samples a proposal; None: 1024, and 256 where d > 20
    starts: int = 2  # polished starts a proposal
    sideways: bool = True  # while n <= 0.5 d, turn each step a little into an unexplored direction
    restless: bool = True  # UCB: every fifth proposal, if nothing is left to learn, explores instead
    fit: bool = True  # False: hyperparameters stay at `hyperparameters` (l, sf2, sn2)
    hyperparameters: tuple[float, float, float] | None = None  # start values; fixed ones with fit=False
    surrogate: str = "closed_form"  # or "gpytorch"
    gpytorch_kernel: Any = None  # any gpytorch kernel (with its priors), for surrogate="gpytorch"
    veto_factor: float = 0.7  # effective gamma after a veto or a failure, times this
    recovery: float = 1.5  # and back by this factor with each completed episode
    max_vetoes: int = 20  # consecutive ones, then Exhausted


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "gamma": 0.6,
        "samples": 1000,
        "orthogonal_init": False,
        "fit_around_mean": False,
        "second_start": False,
        "sideways": False,
        "restless": False,
    },
}


def make_settings(options: dict[str, Any]) -> Settings:
    """Preset, then the user's options, checked."""
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise InvalidInput(f"settings: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    preset = options.get("preset", "default")
    if preset not in PRESETS:
        raise InvalidInput(f"preset: {preset!r} is none of {', '.join(PRESETS)}")
    settings = replace(Settings(), **{**PRESETS[preset], **options})
    check_gamma(settings.gamma)
    if settings.j_min is not None:
        check_j_min(settings.j_min)
    kernel(settings.kernel)
    if settings.centering not in CENTERINGS:
        raise InvalidInput(f"centering: {settings.centering!r} is none of {', '.join(CENTERINGS)}")
    if not callable(settings.acquisition) and settings.acquisition not in NAMES:
        raise InvalidInput(f"acquisition: {settings.acquisition!r} is none of {', '.join(NAMES)} and not callable")
    if settings.surrogate not in ("closed_form", "gpytorch"):
        raise InvalidInput(f"surrogate: {settings.surrogate!r} is neither 'closed_form' nor 'gpytorch'")
    positive = {
        "beta": settings.beta,
        "samples": settings.samples,
        "starts": settings.starts,
        "lipschitz": settings.lipschitz,
        "scale": settings.scale,
        "n_init": settings.n_init,
    }
    for name, value in positive.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidInput(f"{name}: {value} must be positive")
    return settings


def check_gamma(gamma: float) -> float:
    if not (isinstance(gamma, (int, float)) and 0.0 < gamma <= 1.0):
        raise InvalidInput(f"gamma: {gamma!r} is outside (0, 1]")
    return float(gamma)


def check_j_min(j_min: float) -> float:
    if not (isinstance(j_min, (int, float)) and math.isfinite(j_min)):
        raise InvalidInput(f"j_min: {j_min!r} must be a finite number")
    return float(j_min)


def make_hyperparameters(settings: Settings, dim: int) -> Hyperparameters:
    hyper = paper_hyperparameters(dim) if settings.preset == "paper" else default_hyperparameters(dim)
    if settings.hyperparameters is not None:
        hyper = replace(hyper, start=settings.hyperparameters)
    return hyper
