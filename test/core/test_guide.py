"""The simulator's path, and the walk along it."""

import json

import numpy as np
import pytest

from crbo_ros.core.guide import MOST_STARTS, USED, GuidePath, Walk, gradient_path
from crbo_ros.errors import InvalidInput

X0 = np.full(4, 0.5)


def bowl(centre: float, cliff: float = np.inf, noise: float = 0.0):  # type: ignore[no-untyped-def]
    """Rises towards `centre`, in all coordinates; beyond `cliff` from X0 it falls."""

    def simulated(x: np.ndarray, start: int) -> tuple[float, bool]:
        slope = noise * np.random.default_rng(start).standard_normal(4)
        return -float(np.sum((x - centre) ** 2)) + float(slope @ x), float(np.linalg.norm(x - X0)) > cliff

    return simulated


def test_the_path_leads_up_and_only_its_first_part_is_used() -> None:
    path = gradient_path([bowl(0.9)], X0, 0.3)
    assert np.all(np.diff(path.returns) > 0.0)
    assert np.allclose(np.diff(path.points, axis=1), 0.0, atol=1e-9)  # towards (0.9, 0.9, 0.9, 0.9)
    assert path.length == pytest.approx(USED * 0.8, abs=0.03)  # of the way to the crest
    assert np.array_equal(path.points[0], X0)


def test_a_plant_that_falls_ends_the_path_for_all() -> None:
    assert gradient_path([bowl(0.9), bowl(0.9, cliff=0.3)], X0, 0.2).length <= USED * 0.3 + 1e-9


def test_a_plant_that_falls_at_once_has_no_say() -> None:
    alone, together = (gradient_path(plants, X0, 0.2) for plants in ([bowl(0.9)], [bowl(0.9), bowl(0.1, cliff=0.0)]))
    assert np.array_equal(alone.points, together.points)
    assert gradient_path([bowl(0.1, cliff=0.0)], X0, 0.2).length == 0.0


def test_no_plant_outvotes_the_others_by_its_units() -> None:
    def loud(x: np.ndarray, start: int) -> tuple[float, bool]:
        return 1e6 * float(x[0]), False

    def quiet(x: np.ndarray, start: int) -> tuple[float, bool]:
        return float(x[1]), False

    step = gradient_path([loud, quiet], X0, 0.2, most=1).points[-1] - X0
    assert step[0] == pytest.approx(step[1])


def test_noisy_simulators_take_as_many_start_states_as_they_need() -> None:
    asked: set[int] = set()
    noisy = bowl(0.9, noise=0.5)

    def spied(x: np.ndarray, start: int) -> tuple[float, bool]:
        asked.add(start)
        return noisy(x, start)

    gradient_path([spied], X0, 0.2, most=1)
    assert 2 < len(asked) <= MOST_STARTS


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="guide"):
        GuidePath(np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(InvalidInput, match="finite"):
        GuidePath(np.full((1, 2), np.nan), np.zeros(1))


# -- the walk ------------------------------------------------------------------------------------------


def straight() -> GuidePath:
    steps = np.linspace(0.0, 1.0, 11)
    return GuidePath(np.column_stack([0.0 * steps, steps]), 10.0 + steps)


def step(walk: Walk, length: float, gain: float) -> None:
    s = walk.s + length
    walk.waiting = (0, s)
    walk.arrived(walk.target(s), walk.value + gain)


def test_the_first_step_is_a_probe() -> None:
    walk = Walk(straight(), 1.0)
    assert walk.reach(0.2) == pytest.approx(0.07)
    step(walk, 0.07, 0.07)
    assert walk.reach(0.2) == pytest.approx(0.27)


@pytest.mark.parametrize("gain", [-0.1, 0.0, 0.01])
def test_a_probe_without_a_gain_ends_the_walk_where_it_began(gain: float) -> None:
    walk = Walk(straight(), 1.0)
    step(walk, 0.1, gain)
    assert walk.end
    assert walk.s == 0.0
    assert walk.ratios == []


def test_the_guides_units_do_not_matter_but_gains_that_fall_behind_end_it() -> None:
    walk = Walk(straight(), 1.0)
    for _ in range(4):
        step(walk, 0.1, 5.0)
        assert not walk.end
    step(walk, 0.1, 2.0)
    assert "fall behind" in walk.end
    assert walk.s == pytest.approx(0.5)  # the step was a gain all the same


def test_it_ends_with_the_path_and_a_second_veto() -> None:
    walk = Walk(straight(), 1.0)
    step(walk, 1.0, 1.0)
    assert walk.end == "the end of the path"
    assert walk.paid
    walk = Walk(straight(), 1.0)
    for vetoes, end in ((1, False), (2, True)):
        walk.waiting = (0, 0.1)
        walk.refused()
        assert (walk.vetoes, bool(walk.end)) == (vetoes, end)


def test_its_state_is_json_and_all_of_it() -> None:
    walk = Walk(straight(), 1.0)
    step(walk, 0.1, 0.1)
    walk.waiting = (7, 0.3)
    again = Walk.restored(json.loads(json.dumps(walk.state())))
    for each in (walk, again):
        each.arrived(each.target(0.3), 1.3)
    assert again.state() == walk.state()
    walk.left("enough")
    assert "points" not in walk.state()
    assert not walk.paid
    assert Walk.restored(walk.state()).end == "enough"
