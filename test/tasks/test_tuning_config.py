"""The tuning task's YAML: what it means, and errors that name the line and the field. No ROS."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import CrboError, InvalidInput, PolicyFailed
from crbo_ros.plants.ros.config import AGGREGATES, ReturnConfig, read_config
from crbo_ros.plants.ros.episode import RosReturn
from crbo_ros.registry import make_task
from crbo_ros.returns.fields import number_at
from crbo_ros.ros.link import RosLink

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = """\
parameters:
  - node: /robot/controller
    name: gains.p
    lower: 0.1
    upper: 10.0
    start: 1.0
    scale: log
  - {node: /robot/controller, name: gains.d, lower: -1, upper: 1e0, start: 0}
episode:
  start: {service: /robot/run}
  stop: {service: /robot/halt}
  timeout: 5
return:
  topic: /robot/cost
  type: std_msgs/msg/Float64
  field: data
  aggregate: mean
  negate: true
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tuning.yaml"
    file.write_text(text)
    return file


def test_a_task_is_made_from_the_file_without_ros(tmp_path: Path) -> None:
    task = make_task("tuning", config=write(tmp_path, GOOD))
    assert task.dim == 2
    assert task.space.names == ["/robot/controller gains.p", "/robot/controller gains.d"]
    np.testing.assert_array_equal(task.theta_0, [1.0, 0.0])
    np.testing.assert_allclose(task.space.to_unit([1.0, 0.0]), [0.5, 0.5])  # log and linear
    assert task.config.episode.start.type == "std_srvs/srv/Trigger"
    assert task.plant.is_hardware


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("pid*.yaml")))
def test_the_examples_are_right(name: Any) -> None:
    assert make_task("tuning", config=EXAMPLES / name).dim >= 3


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("lower: 0.1", "lower: abc", 4, r"parameters\[0\].lower: 'abc' is not a number"),
        ("lower: 0.1", "lower: .nan", 4, r"parameters\[0\].lower: nan is not finite"),
        ("lower: 0.1", "lower: 20", 4, r"parameters\[0\].lower: 20 is not below upper"),
        ("lower: 0.1", "lower: 0", 4, r"parameters\[0\].lower: 0: a log scale"),
        ("    start: 1.0\n", "", 2, r"parameters\[0\].start: is missing"),
        ("start: 1.0", "start: 11", 6, r"parameters\[0\].start: 11 is outside \[0.1, 10\]"),
        ("scale: log", "scale: loog", 7, r"parameters\[0\].scale: 'loog' is none of linear, log"),
        ("scale: log", "scales: log", 7, r"parameters\[0\].scales: there is no such field"),
        ("gains.d", "gains.p", 8, r"parameters\[1\].name: .* listed twice"),
        ("node: /robot/controller\n", "node: robot\n", 2, r"parameters\[0\].node: 'robot' is not an absolute"),
        ("timeout: 5", "timeout: -5", 12, r"episode.timeout: -5 must be above 0"),
        ("  start: {service: /robot/run}\n", "", 10, r"episode: needs `start`"),
        ("  stop: {service: /robot/halt}\n", "", 10, r"episode: needs `stop` .*, or `unstoppable: true`"),
        ("timeout: 5", "unstoppable: true", 12, r"episode.unstoppable: there is a way to stop it"),
        ("{service: /robot/run}", "{pipe: /robot/run}", 10, r"episode.start: needs exactly one of service, action"),
        ("std_msgs/msg/Float64", "Float64", 15, r"return.type: 'Float64' is not a type such as std_msgs/msg"),
        ("field: data", "field: data.[1]", 16, r"return.field: 'data.\[1\]' is not a field"),
        ("aggregate: mean", "aggregate: median", 17, r"return.aggregate: 'median' is none of sum"),
        ("negate: true", "negate: 3", 18, r"return.negate: 3 is neither"),
        ("negate: true", "answer: true", 14, r"return: needs exactly one of topic, service, answer"),
        ("negate: true", "negate: true\n  negate: false", 19, r"return.negate: appears twice"),
        ("negate: true", "negate: true\ngamma: 2", 19, r"gamma: 2 is outside \(0, 1\]"),
        ("negate: true", "negate: true\nrest: best known", 19, r"rest: 'best known' is none of best, start"),
        ("negate: true", "negate: true\nspeed: 2", 19, r"speed: there is no such field; there are: episode, gamma"),
        ("parameters:\n", "parameters: 3\nother:\n", 1, r"parameters: expected a list"),
        ("negate: true", "negate: [", 19, "not YAML"),
    ],
)
def test_a_wrong_file_gets_an_error_that_names_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, field: str
) -> None:
    assert old in GOOD
    with pytest.raises(InvalidInput, match=rf"tuning.yaml, line {line}: {field}"):
        read_config(write(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize("text", ["", "3", "- 1", "\t", "{a: b", "a: *b", "!!python/object:os.system {}"])
def test_what_is_no_configuration_at_all_is_refused_too(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"tuning\.yaml"):
        read_config(write(tmp_path, text))


def test_a_missing_file_and_a_missing_option_say_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        make_task("tuning", config=tmp_path / "nothing.yaml")
    with pytest.raises(CrboError, match="--config FILE"):
        make_task("tuning")


def test_returns_are_aggregated_and_costs_negated() -> None:
    samples = [3.0, 1.0, 2.0]
    got = {name: ReturnConfig("data", aggregate=name).value(samples) for name in AGGREGATES}
    assert got == {"sum": 6.0, "mean": 2.0, "min": 1.0, "max": 3.0, "last": 2.0}
    assert ReturnConfig("data", aggregate="max", negate=True).value(samples) == -3.0


def test_a_field_is_found_by_its_path_and_texts_are_read_as_numbers() -> None:
    message = SimpleNamespace(pose=SimpleNamespace(x=[1.0, 2.5]), message="-3.25", bad="n/a", odd=float("nan"))
    assert number_at(message, "pose.x[1]") == 2.5
    assert number_at(message, "pose.x[-2]") == 1.0
    assert number_at(message, "message") == -3.25
    for path in ("pose.y", "pose.x[2]", "pose", "bad", "odd", "pose.x.z"):
        with pytest.raises(InvalidInput, match="field"):
            number_at(message, path)


def test_crbo_run_tells_a_mistake_in_the_file_before_it_starts_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from crbo_ros.cli import main

    file = write(tmp_path, GOOD.replace("aggregate: mean", "aggregate: median"))
    assert main(["run", "tuning", "--config", str(file), "--experiments-dir", str(tmp_path / "experiments")]) == 1
    printed = capsys.readouterr()
    assert "tuning.yaml, line 17: return.aggregate: 'median' is none of" in printed.err
    assert printed.out == ""
    assert not (tmp_path / "experiments").exists()


CONSTRAINED = """
parameters:
  - {node: /n, name: slow, lower: 0.0, upper: 1.0, start: 0.2}
  - {node: /n, name: fast, lower: 0.0, upper: 1.0, start: 0.6}
  - {node: /n, name: count, lower: 1, upper: 9, start: 4, type: integer}
  - {node: /n, name: active, start: false, type: bool}
  - {node: /n, name: mass, start: 3.5, fixed: true}
constraints: [slow < fast]
episode: {seconds: 1.0, unstoppable: true}
return: {topic: /c, type: std_msgs/msg/Float64, field: data, aggregate: mean}
"""


def test_every_proposal_respects_whole_numbers_switches_and_coupled_limits(tmp_path: Path) -> None:
    from crbo_ros.core import CRBO

    file = tmp_path / "c.yaml"
    file.write_text(CONSTRAINED)
    config = read_config(file)
    assert [(p.name, p.start) for p in config.fixed] == [("mass", 3.5)]
    optimizer = CRBO(config.space, [p.start for p in config.parameters], gamma=0.9, seed=2)
    for _ in range(25):
        proposal = optimizer.ask()
        slow, fast, count, on = proposal.theta
        assert slow < fast
        assert count == round(count)
        assert on in (0.0, 1.0)
        optimizer.tell(proposal.id, float(-((slow - 0.7) ** 2) - (fast - 0.3) ** 2 + 0.1 * count + on))
    for wrong, words in (
        ("fast < slow", "does not hold for the start values"),
        ("slow < mass", "not of the form a < b"),
    ):
        file.write_text(CONSTRAINED.replace("slow < fast", wrong))
        with pytest.raises(InvalidInput, match=words):
            read_config(file)


def test_a_cost_that_is_not_finite_ends_the_episode_at_the_next_look() -> None:
    """A controller that goes unstable is not watched until the episode's time is up (PX4 18905)."""
    returns = RosReturn(RosLink("test"), ReturnConfig(topic="/robot/cost", type="std_msgs/msg/Float64", field="data"))
    returns.begin()
    returns._on_message(SimpleNamespace(data=1.0))
    returns.check()
    returns._on_message(SimpleNamespace(data=float("nan")))
    with pytest.raises(PolicyFailed, match="/robot/cost: field 'data': is nan"):
        returns.check()
