"""A task's simulators as a guide: which plants, what is left out, what falls."""

import json
from pathlib import Path

import numpy as np
import pytest

from crbo_ros.bringup.graph import graph
from crbo_ros.bringup.plan import make_plan
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput, UnknownName
from crbo_ros.registry import make_task, task_problem
from crbo_ros.tasks.base import Outcome, Task
from crbo_ros.tasks.guide import check_guide, path_of, simulated


class Ramp(Task):
    """Returns rise with the mean of theta until they drop."""

    name, plants, hardware, j_min_drop = "ramp", ("simulated",), False, 0.5
    space, theta_0 = Space(np.zeros(3), np.ones(3)), np.full(3, 0.2)

    def rollout(self, theta, rng, *, record=False, watch=None):  # type: ignore[no-untyped-def]
        mean = float(np.mean(theta))
        return Outcome(1.0 + mean if mean < 0.5 else 0.1, "completed")


def test_a_return_below_the_tasks_own_threshold_is_a_fall() -> None:
    episode = simulated(Ramp(), Ramp.space)
    assert [episode(np.full(3, mean), 0)[1] for mean in (0.4, 0.6)] == [False, True]
    path = path_of([Ramp()], Ramp.problem())
    assert 0.1 < path.length < 0.6 * 0.3 * np.sqrt(3.0)


@pytest.mark.parametrize(
    ("task", "guide", "words"),
    [
        ("furuta", "qube_hardware", "is real"),
        ("furuta", "nominal,qube_pal", "is real"),
        ("furuta", "nomial", "no plant 'nomial'"),
        ("cartpole", "ensemble", "has no ensemble"),
    ],
)
def test_a_guide_that_is_none_is_refused_before_anything_starts(
    task: str, guide: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises((InvalidInput, UnknownName), match=words):
        make_plan(task, {"guide": guide, "experiments_dir": str(tmp_path)})


def test_the_argument_is_a_setting_of_the_method() -> None:
    own = graph("furuta", {"guide": "nominal", "settings": json.dumps({"beta": 1.5})})[0].configured()
    assert own["settings"] == {"beta": 1.5, "guide": "nominal"}


def test_the_robots_own_plant_options_are_not_the_guides() -> None:
    options = {"plant_options": {"changes": {"mp": 0.03}}, "stepped": True}
    (nominal,) = check_guide(task_problem("furuta", "stand_in", **options), "nominal", options)
    assert nominal.plant.parameters.mp == 0.024
    ensemble = check_guide(task_problem("furuta", "stand_in"), "ensemble", {})
    assert len({task.plant.parameters.mp for task in ensemble}) == len(ensemble) > 1


def test_a_qube_can_be_changed() -> None:
    task = make_task("furuta", "nominal", plant_options={"changes": {"mp": 0.03, "latency": 1}})
    assert (task.plant.parameters.mp, task.plant.parameters.latency) == (0.03, 1.0)
    assert task.problem("nominal", plant_options={"changes": {"mp": 0.03}}).key != task.problem("nominal").key
    for changes, words in (({"mass": 1.0}, "has no 'mass'"), ({"mp": "heavy"}, "mp")):
        with pytest.raises(InvalidInput, match=words):
            make_task("furuta", "nominal", plant_options={"changes": changes})


def test_a_gymnasium_environment_can_be_changed() -> None:
    pytest.importorskip("gymnasium")
    heavy = make_task("pendulum", "gymnasium", physics={"m": 3.0})
    light, rng = make_task("pendulum", "gymnasium"), np.random.default_rng
    assert heavy.rollout(heavy.theta_0, rng(1)).value != light.rollout(light.theta_0, rng(1)).value
    assert heavy.problem("gymnasium", physics={"m": 3.0}).key != light.problem("gymnasium").key
    with pytest.raises(InvalidInput, match="only the plant gymnasium"):
        make_task("pendulum", physics={"m": 3.0})
    with pytest.raises(InvalidInput, match="no number 'mass'"):
        make_task("pendulum", "gymnasium", physics={"mass": 3.0}).connect()
