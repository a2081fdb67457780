"""Safety signals: what went beyond its limit is a violation, whatever the return was."""

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench.in_process import run_in_process
from crbo_ros.core.bound import signal_bound
from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.plants.ros.config import SafetySignal
from crbo_ros.plants.ros.safety_signals import SafetyListener
from crbo_ros.registry import make_task
from crbo_ros.ros.link import RosLink
from crbo_ros.tasks.signals import Signal, watched_rollout


def furuta(stepped: bool = False, **signals: Any) -> Any:
    return make_task("furuta", signals=signals, stepped=stepped)


def test_the_largest_value_of_each_signal_goes_with_the_result_and_beyond_the_limit_it_is_a_violation() -> None:
    for stepped in (False, True):
        with furuta(stepped, voltage=100.0, arm=0.01) as task:
            outcome = watched_rollout(task, task.theta_0, np.random.default_rng(0))
        assert outcome.counts, "the return counts all the same"
        assert 0.0 < outcome.signals["voltage"] <= 3.0
        assert outcome.violation.startswith("arm ")
        assert outcome.violation.endswith("is beyond its limit 0.01")
        assert outcome.trajectory is None, "nobody asked for it"


def test_without_signals_nothing_changes() -> None:
    with make_task("furuta") as task:
        plain = task.rollout(task.theta_0, np.random.default_rng(0))
        outcome = watched_rollout(task, task.theta_0, np.random.default_rng(0))
    assert (outcome.value, outcome.violation, outcome.signals) == (plain.value, "", {})


def test_beyond_a_hard_limit_the_episode_ends_before_the_next_action_without_a_return() -> None:
    asked: list[float] = []

    def watch(time: float, observation: Any, action: Any) -> None:
        asked.append(time)

    with furuta(stepped=True, arm=[0.02, 0.05]) as task:
        outcome = watched_rollout(task, task.theta_0, np.random.default_rng(0), watch=watch)
    assert (outcome.end, outcome.counts) == ("failed", False), "it is not tried again"
    assert "is beyond its hard limit 0.05" in outcome.violation
    assert outcome.reason == outcome.violation
    assert outcome.duration < 5.0
    assert len(asked) > 1, "whoever watches is still asked"


@pytest.mark.parametrize("signals", [{"speed": 1.0}, {"arm": -1.0}, {"arm": [1.0, 2.0, 3.0]}, {"arm": "much"}])
def test_a_signal_that_makes_no_sense_is_refused_by_name(signals: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="signals"):
        furuta(**signals)


TUNING = """\
parameters: [{node: /robot, name: p, lower: 0.0, upper: 2.0, start: 1.0}]
episode: {seconds: 1.0, unstoppable: true}
return: {topic: /cost, type: std_msgs/msg/Float64, field: data, aggregate: mean}
safety:
  - {name: current, topic: /motor, type: std_msgs/msg/Float64, field: data, limit: 5.0, hard: 8.0}
"""


def test_a_tuning_file_names_signals_of_topics_and_an_arms_those_of_its_joints(tmp_path: Path) -> None:
    (tmp_path / "tuning.yaml").write_text(TUNING)
    task = make_task("tuning", config=tmp_path / "tuning.yaml")
    assert (task.signals, task.columns) == ((Signal("current", 5.0, 8.0),), ("current",))
    text = (Path(__file__).parents[2] / "examples" / "arm.yaml").read_text()
    lines = (
        "safety:\n  - {joint: elbow, of: effort, limit: 2.0}\n  - {joint: elbow, of: velocity, limit: 1.0, hard: 2.0}\n"
    )
    (tmp_path / "arm.yaml").write_text(text + lines)
    arm = make_task("arm", config=tmp_path / "arm.yaml")
    assert arm.signals == (Signal("elbow effort", 2.0), Signal("elbow velocity", 1.0, 2.0))
    assert arm.columns == ("shoulder", "elbow", "elbow effort", "elbow velocity")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("hard: 8.0", "hard: 4.0", "hard: 4 is below the limit 5"), ("limit: 5.0", "limit: -1", "limit"),
     ("field: data, limit", "field: 'a b', limit", "field"), ("topic: /motor", "topic: motor", "topic"),
     ("topic: /motor", "joint: elbow", "topic"), ("hard: 8.0", "hardest: 8.0", "hardest")],
)  # fmt: skip
def test_a_safety_signal_of_a_file_that_makes_no_sense_is_refused_by_line_and_field(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert TUNING.count(old) == 1
    (tmp_path / "tuning.yaml").write_text(TUNING.replace(old, new))
    with pytest.raises(InvalidInput, match=f"tuning.yaml, line 5: .*{said}"):
        make_task("tuning", config=tmp_path / "tuning.yaml")


def test_a_number_that_is_not_finite_is_beyond_every_limit_and_other_joints_messages_say_nothing() -> None:
    current = SafetySignal("current", "/motor", "std_msgs/msg/Float64", "data", 5.0)
    assert [current.value(SimpleNamespace(data=v)) for v in (-3.0, math.nan)] == [3.0, math.inf]
    assert current.value(SimpleNamespace(other=1.0)) == math.inf
    elbow = SafetySignal("elbow effort", "/joint_states", "sensor_msgs/msg/JointState", "effort", 5.0, joint="elbow")
    assert elbow.value(SimpleNamespace(name=["wrist", "elbow"], effort=[9.0, -2.0])) == 2.0
    assert elbow.value(SimpleNamespace(name=["wrist"], effort=[9.0])) is None
    assert elbow.value(SimpleNamespace(name=["elbow"], effort=[])) is None


def test_a_signal_with_a_hard_limit_that_falls_silent_or_was_never_heard_is_the_plants_fault() -> None:
    signal = SafetySignal("current", "/motor", "std_msgs/msg/Float64", "data", 5.0, 8.0, silence=0.05)
    listener = SafetyListener(RosLink("test"), (signal,))
    listener._hear("/motor", SimpleNamespace(data=99.0))
    assert listener.largest().tolist() == [0.0], "before the episode"
    listener.begin()
    with pytest.raises(PlantError, match="current: nothing on /motor during the episode"):
        listener.heard()
    listener._hear("/motor", SimpleNamespace(data=-7.0))
    listener._hear("/motor", SimpleNamespace(data=1.0))
    listener.check()
    assert listener.heard() == {"current": 7.0}
    time.sleep(0.06)
    with pytest.raises(PlantError, match="current: nothing on /motor for"):
        listener.check()
    listener.reset()
    assert listener.heard(complete=False) == {}
    assert listener.largest().tolist() == [0.0]


def test_a_signal_beyond_its_limit_is_counted_by_the_account_and_its_worst_case_is_shown(tmp_path: Path) -> None:
    terms = {"risk": 0.1, "j_min": -1000.0, "budget": 12}
    with furuta(arm=10.0) as task:
        start = [watched_rollout(task, task.theta_0, np.random.default_rng(k)).signals["arm"] for k in range(8)]
    task = furuta(arm=1.001 * max(start))  # the steps of gamma 0.9 go further than theta_0 does
    run = run_in_process(task, tmp_path, episodes=12, seed=1, terms=terms, settings={"gamma": 0.9, **terms})
    assert 1 <= run.contract.novel_violations <= 2, "and not the return's"
    assert run.contract.executed == 12
    assert run.contract.signal_names == ("arm",)
    assert run.contract.signal_bounds[0] > 0.5 * max(start)


def test_a_contract_is_refused_where_theta_0_itself_exceeds_a_signals_limit(tmp_path: Path) -> None:
    terms = {"risk": 0.1, "j_min": -1000.0, "budget": 8}
    run = run_in_process(furuta(arm=0.01), tmp_path, episodes=8, seed=1, terms=terms, settings={"gamma": 0.5, **terms})
    assert (run.state, run.contract.state) == ("exhausted", "refused")
    assert "theta_0 itself broke it" in run.contract.reason
    assert run.contract.executed <= 3


def test_the_worst_case_of_a_signal_holds_mostly_on_a_slope() -> None:
    rng = np.random.default_rng(1)
    X = rng.random((60, 3))
    values = 1.0 + X @ np.array([1.0, 0.5, 0.0]) + 0.01 * rng.standard_normal(60)
    held = [values[i] <= signal_bound(X[i], X[:i], values[:i], 4.0) for i in range(1, 60)]
    assert np.mean(held) >= 0.85
