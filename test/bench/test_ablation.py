"""The ablation: every variant changes one part of the recipe, and differences are paired by seed."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench.ablation import AS_IT_IS, VARIANTS, paired
from crbo_ros.bench.problems import changed_recipe, make_run_method
from crbo_ros.core.settings import RECIPES, make_settings
from crbo_ros.core.space import Space


@pytest.mark.parametrize("label", VARIANTS)
def test_a_variant_is_a_method_with_its_own_recipe(label: str) -> None:
    settings = VARIANTS[label]
    method = make_run_method("crbo", Space([0.0] * 3, [1.0] * 3), np.full(3, 0.5), 1, settings)
    assert method.recipe == changed_recipe(settings)
    preset = make_settings({key: value for key, value in settings.items() if key != "recipe"}).preset
    assert (method.recipe == RECIPES[preset]) == ("recipe" not in settings)


def record(label: str, seed: int, average: float, final: float, regret: float | None = None) -> dict[str, Any]:
    run = {"problem": "bowl", "label": label, "seed": seed}
    return {"run": run, "rows": [{"return": average}, {"return": None}], "final": [final], "final_regret": regret}


def test_differences_are_paired_by_seed_with_their_standard_error() -> None:
    """The seeds' own levels (0, 10, 20) cancel; seed 3 has no partner and does not count."""
    own = [record(AS_IT_IS, seed, 10.0 * seed, 1.0) for seed in range(4)]
    other = [record("other", seed, 10.0 * seed + gap, 2.0) for seed, gap in enumerate((1.0, 2.0, 3.0))]
    assert paired(own + other)[1:] == [
        ["bowl", "other", "3", f"+2 +- {1.0 / math.sqrt(3.0):.2g}", "+1 +- 0"],
    ]
