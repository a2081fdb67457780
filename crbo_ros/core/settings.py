"""The settings of CRBO, its two presets, and their checks.

`paper` is the paper's method, `default` ours. What they differ in is no setting of its own but the preset's recipe:

1. Hyperparameters are fitted to returns minus their mean (and the best policy is chosen so); only the prediction is
   centred on the best return. Max-centred returns all lie below zero, and a zero-mean process explains such an offset
   by a long lengthscale and a large signal: the region then grows past what the data support. This alone decides
   whether a moderate gamma works in 5-D.
2. Priors that scale with the dimension and do not let noise explain everything (`default_hyperparameters`).
3. The initial directions are mutually orthogonal.
4. In many dimensions the initial design is short, and early steps go a little sideways instead (`search.sideways`):
   they learn a new direction each on their way up, where the paper spends ceil(sqrt d) episodes at the start's level.
5. Every fifth fit has a second start with much noise: a fit that only follows its last result never finds it.
6. theta_0 comes twice. What differs between its two returns is noise; without that, noise is soon taken for a short
   lengthscale, and the steps become too small to find out.
7. A run that has stopped improving in noise keeps the steps that it would have without noise (`core/stall.py`).
8. A return that the others find incredible is not believed at once: its policy runs again (`core/doubt.py`).

What each part is worth is measured by `./crbo bench ablation`; see docs/RESULTS.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from crbo_ros.core.acquisition import NAMES
from crbo_ros.core.contract import Terms
from crbo_ros.core.kernels import Array, kernel
from crbo_ros.errors import InvalidInput


@dataclass(frozen=True)
class Settings:
    """Everything that a run of CRBO depends on besides seed and returns. Distances are in the unit box."""

    preset: str = "default"  # or "paper"
    gamma: float = 0.5  # confidence parameter, 0 < gamma <= 1 (1: standard BO in the box)
    gamma_schedule: float = 0.0  # gamma_n = 1 - (1 - gamma) exp(-gamma_schedule n): grows towards 1
    beta: float = 2.0  # UCB: mean + beta sigma
    acquisition: str | Callable[[Array, Array], Array] = "ucb"
    kernel: str = "matern52"
    n_init: int | None = None  # size of the initial design, theta_0 included; None: the preset's
    lipschitz: float | None = None  # the user's Lipschitz constant, return per unit of the unit box
    scale: float | None = None  # typical spread of the returns, for the first worst cases
    hyperparameters: tuple[float, float, float] | None = None  # known l, sf2, sn2 (return's units); None: fitted
    least_gain: float | None = None  # a stalled run ends when an episode is expected to gain less; None: it goes on
    surrogate: Any = "closed_form"  # or "gpytorch", or a gpytorch kernel of the user's own, with its priors


@dataclass(frozen=True)
class Recipe:
    """What hangs on the preset alone. Nobody sets these one by one, except the ablation that judges them."""

    orthogonal_init: bool = True  # initial directions mutually orthogonal, not independent
    fit_around_mean: bool = True  # fit hyperparameters to mean-centred returns
    second_start: bool = True  # every fifth fit also starts from much noise; the better one is kept
    sideways: bool = True  # while n <= 0.5 d, turn each step a little into an unexplored direction
    repeat_start: bool = True  # theta_0 twice at first: what differs is noise and nothing else
    stall: bool = True  # a run that has stopped improving looks further, see core/stall.py
    doubt: bool = True  # returns that the others find incredible are left out and run again, see core/doubt.py
    samples: int | None = None  # hit-and-run samples a proposal; None: 1024, and 256 where d > 20


PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": {"gamma": 0.6}}  # what the user's settings start from
RECIPES = {
    "default": Recipe(),
    "paper": Recipe(
        orthogonal_init=False,
        fit_around_mean=False,
        second_start=False,
        sideways=False,
        repeat_start=False,
        stall=False,
        doubt=False,
        samples=1000,
    ),
}


TERMS = ("risk", "j_min", "j_min_drop", "budget", "start_rollouts")  # options that are the contract's, not settings


def make_settings(options: dict[str, Any]) -> Settings:
    """Preset, then the user's options, checked."""
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(options) - known - set(TERMS))
    if unknown:
        raise InvalidInput(f"settings: unknown {', '.join(unknown)}; there are {', '.join(sorted({*known, *TERMS}))}")
    preset = options.get("preset", "default")
    if preset not in PRESETS:
        raise InvalidInput(f"preset: {preset!r} is none of {', '.join(PRESETS)}")
    make_terms(options)
    own = {name: value for name, value in options.items() if name in known}
    settings = replace(Settings(), **{**PRESETS[preset], **own})
    kernel(settings.kernel)
    if not callable(settings.acquisition) and settings.acquisition not in NAMES:
        raise InvalidInput(f"acquisition: {settings.acquisition!r} is none of {', '.join(NAMES)} and not callable")
    if settings.surrogate not in ("closed_form", "gpytorch") and not callable(settings.surrogate):
        raise InvalidInput(
            f"surrogate: {settings.surrogate!r} is neither 'closed_form' nor 'gpytorch' nor a gpytorch kernel"
        )
    check_gamma(settings.gamma)
    if settings.gamma_schedule != 0.0:
        check_number("gamma_schedule", settings.gamma_schedule, 0.0)
    for name, low in (("beta", 0.0), ("lipschitz", 0.0), ("scale", 0.0), ("n_init", 0.0), ("least_gain", 0.0)):
        if getattr(settings, name) is not None:
            check_number(name, getattr(settings, name), low)
    if settings.hyperparameters is not None:
        settings = replace(settings, hyperparameters=check_hyperparameters(settings.hyperparameters))
    return settings


def make_terms(options: dict[str, Any], terms: Terms | None = None) -> Terms:
    """The contract (core.contract) that the user's options ask for, or `terms` changed by them, checked."""
    found = replace(terms or Terms(), **{name: options[name] for name in TERMS if options.get(name) is not None})
    if options.get("lipschitz") is not None:
        found = replace(found, lipschitz=check_number("lipschitz", options["lipschitz"], 0.0))
    if found.j_min > -math.inf:
        check_number("j_min", found.j_min)
    elif math.isnan(found.j_min):
        raise InvalidInput("j_min: is NaN")
    if not found.j_min_drop >= 0.0:
        raise InvalidInput(f"j_min_drop: {found.j_min_drop!r} must be a number, not negative (inf: no threshold)")
    if not 0.0 <= found.risk <= 1.0:
        raise InvalidInput(f"risk: {found.risk!r} must be a number from 0 to 1")
    for name in ("budget", "start_rollouts"):
        value = getattr(found, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < (name == "start_rollouts"):
            raise InvalidInput(f"{name}: {value!r} must be a whole number, not negative")
    return found


def check_hyperparameters(values: Any) -> tuple[float, float, float]:
    """(lengthscale, signal variance, noise variance), or InvalidInput."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != 3:
        raise InvalidInput(f"hyperparameters: {values!r} must be (lengthscale, signal variance, noise variance)")
    lengthscale, signal, noise = (check_number("hyperparameters", value, 0.0) for value in values)
    return lengthscale, signal, noise


def check_gamma(gamma: Any) -> float:
    return check_number("gamma", gamma, 0.0, 1.0)


def check_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in (low, high], or InvalidInput that names the setting."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low < value <= high):
        above = f" above {low:g}" if low > -math.inf else ""
        most = f", at most {high:g}" if high < math.inf else ""
        raise InvalidInput(f"{name}: {value!r} must be a finite number{above}{most}")
    return float(value)
