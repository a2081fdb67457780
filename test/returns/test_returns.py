"""Each metric against a log whose value is computed by hand, the same from a bag, and mistakes told by line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crbo_ros import cli
from crbo_ros.errors import InvalidInput
from crbo_ros.returns.definition import METRICS, Log, read_definition
from crbo_ros.returns.fields import number_at

# A step from 0 to 2 at five samples, 1 s apart: error 2, 1, -0.5, 0.25, 0.02 (1 % of the step).
TIMES, MEASURED = (10.0, 11.0, 12.0, 13.0, 14.0), (0.0, 1.0, 2.5, 1.75, 1.98)
INPUTS = (0.0, 3.0, -3.0, 1.0, 1.0)
# A square of 1 m: there, up and back, against a straight plan of 2 m along x.
TRACK, PLAN = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)), ((0.0, 0.0), (2.0, 0.0))


def point(x: float, y: float) -> SimpleNamespace:
    return SimpleNamespace(pose=SimpleNamespace(position=SimpleNamespace(x=x, y=y)))


def ranges(*values: float) -> SimpleNamespace:
    return SimpleNamespace(ranges=list(values))


def a_log() -> Log:
    odometry = [(t, SimpleNamespace(pose=point(*p))) for t, p in zip(TIMES, TRACK, strict=False)]
    return {
        "/y": [(t, SimpleNamespace(data=v)) for t, v in zip(TIMES, MEASURED, strict=True)],
        "/r": [(10.0, SimpleNamespace(data=2.0)), (14.0, SimpleNamespace(data=2.0))],
        "/u": [(t, SimpleNamespace(data=v)) for t, v in zip(TIMES, INPUTS, strict=True)],
        "/odom": odometry,
        "/plan": [(10.0, SimpleNamespace(poses=[point(*p) for p in PLAN]))],
        "/scan": [(10.0, ranges(math.inf, 0.6, 0.4)), (11.0, ranges(0.9, 0.7, 1.0))],
    }  # fmt: skip


SIGNALS = """
signals:
  y: {topic: /y, type: std_msgs/msg/Float64, field: data, unit: rad}
  r: {topic: /r, type: std_msgs/msg/Float64, field: data, unit: rad}
  u: {topic: /u, type: std_msgs/msg/Float64, field: data, unit: Nm}
  pose: {topic: /odom, type: nav_msgs/msg/Odometry}
  plan: {topic: /plan, type: nav_msgs/msg/Path}
  scan: {topic: /scan, type: sensor_msgs/msg/LaserScan, field: "ranges[min]", unit: m}
"""
BY_HAND = {
    # trapezoids of |e|: (2 + 1)/2 + (1 + .5)/2 + (.5 + .25)/2 + (.25 + .02)/2
    "iae": (2.76, "of: y, against: r", "rad s"),
    # of e²: (4 + 1)/2 + (1 + .25)/2 + (.25 + .0625)/2 + (.0625 + .0004)/2
    "ise": (3.3127, "of: y, against: r", "rad² s"),
    # of t|e|: (0 + 1)/2 + (1 + 1)/2 + (1 + .75)/2 + (.75 + .08)/2
    "itae": (2.79, "of: y, against: r", "rad s²"),
    "rms_error": (math.sqrt(3.3127 / 4.0), "of: y, against: r", "rad"),
    "max_error": (2.0, "of: y, against: r", "rad"),
    "overshoot": (0.25, "of: y, against: r", "of the step"),  # 2.5 for 2
    # 10 % (0.2) at 0.2 s, 90 % (1.8) at 1 + 0.8/1.5 s
    "rise_time": (1.0 + 0.8 / 1.5 - 0.2, "of: y, against: r", "s"),
    "settling_time": (4.0, "of: y, against: r", "s"),  # outside 2 % until the last but one sample
    # u²: 0, 9, 9, 1, 1
    "effort": (4.5 + 9.0 + 5.0 + 1.0, "of: u", "Nm² s"),
    "total_variation": (3.0 + 6.0 + 4.0 + 0.0, "of: u", "Nm"),
    "saturation": (0.5, "of: u, limit: 3.0", "of the time"),  # two of four seconds
    "mean": ((1.5 + 0.0 - 1.0 + 1.0) / 4.0, "of: u", "Nm"),
    "min": (0.4, "of: scan", "m"),  # the clearance
    "max": (3.0, "of: u", "Nm"),
    "last": (1.0, "of: u", "Nm"),
    "duration": (4.0, "of: u", "s"),
    "acceleration": (9.0 + 36.0 + 16.0 + 0.0, "of: u", "Nm²/s"),
    "path_length": (3.0, "of: pose", "m"),
    "path_ratio": (1.5, "of: pose, against: plan", "of the plan"),
    "cross_track": (math.sqrt(0.5), "of: pose, against: plan", "m"),  # 0, 0, 1, 1
    "cross_track_max": (1.0, "of: pose, against: plan", "m"),
    "goal_error": (math.hypot(2.0, 1.0), "of: pose, against: plan", "m"),
}


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "return.yaml").write_text(SIGNALS + text)
        return tmp_path / "return.yaml"

    return write


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_is_what_it_is_by_hand(metric: str, file: Callable[[str], Path]) -> None:
    value, where, unit = BY_HAND[metric]
    scored = read_definition(file(f"terms: [{{metric: {metric}, {where}}}]\n")).score(a_log())
    assert scored.value == pytest.approx(value, abs=1e-12)
    assert scored.terms[0].unit == unit


def test_the_return_is_the_weighted_sum_and_limits_stand_beside_it(file: Callable[[str], Path]) -> None:
    text = """
terms:
  - {metric: iae, of: y, against: r, weight: -2.0}
  - {metric: effort, of: u, weight: -0.1}
limits:
  - {metric: max_error, of: y, against: r, above: 1.5}
  - {metric: min, of: scan, below: 0.2}
"""
    definition = read_definition(file(text))
    scored = definition.score(a_log())
    assert scored.value == pytest.approx(-2.0 * 2.76 - 0.1 * 19.5)
    assert [violation[:16] for violation in scored.violations] == ["max_error of y a"]
    assert definition.violations({"/scan": a_log()["/scan"]}, partial=True) == []  # what cannot be told yet
    near = {"/scan": [(0.0, ranges(0.1)), (1.0, ranges(1.0))]}
    assert definition.violations(near, partial=True) == ["min of scan is 0.1 m, below 0.2"]


def test_a_messages_own_stamp_counts_where_it_has_one(file: Callable[[str], Path]) -> None:
    log = dict(a_log())

    def stamped(t: float, v: float) -> SimpleNamespace:
        return SimpleNamespace(data=v, header=SimpleNamespace(stamp=SimpleNamespace(sec=int(t * 2), nanosec=0)))

    log["/u"] = [(0.1 * i, stamped(t, v)) for i, (t, v) in enumerate(zip(TIMES, INPUTS, strict=True))]
    assert read_definition(file("terms: [{metric: duration, of: u}]\n")).score(log).value == 8.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("terms: [{metric: itea, of: y, against: r}]\n", r"line 9: terms\[0\].metric: 'itea' is none of"),
        ("terms: [{metric: iae, of: y}]\n", r"terms\[0\].against: is missing"),
        ("terms: [{metric: iae, of: x, against: r}]\n", "'x' is none of y, r, u"),
        ("terms: [{metric: effort, of: pose}]\n", "give the signal pose a field"),
        ("terms: [{metric: saturation, of: u}]\n", "limit: is missing"),
        ("terms: [{metric: iae, of: y, against: r, wieght: 1}]\n", "there is no such field"),
        ("terms: [{metric: max, of: u}]\nlimits: [{metric: max, of: u}]\n", "needs `above` or `below`"),
    ],
)
def test_mistakes_are_told_by_line_and_field(text: str, words: str, file: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_definition(file(text))


def test_what_a_record_lacks_is_named(file: Callable[[str], Path]) -> None:
    definition = read_definition(file("terms: [{metric: iae, of: y, against: r}]\n"))
    with pytest.raises(InvalidInput, match="iae of y against r: no message on /r"):
        definition.score({"/y": a_log()["/y"]})
    assert number_at(SimpleNamespace(d=SimpleNamespace(sec=2, nanosec=500_000_000)), "d") == 2.5


POINT = "float64 x\nfloat64 y\nfloat64 z"
LINE = "=" * 80
DEFINITIONS = {  # as a bag holds them, without what no metric reads
    "std_msgs/msg/Float64": "float64 data",
    "sensor_msgs/msg/LaserScan": "float32[] ranges",
    "nav_msgs/msg/Odometry": f"geometry_msgs/PoseStamped pose\n{LINE}\nMSG: geometry_msgs/PoseStamped\n"
    f"geometry_msgs/Pose pose\n{LINE}\nMSG: geometry_msgs/Pose\ngeometry_msgs/Point position\n{LINE}\n"
    f"MSG: geometry_msgs/Point\n{POINT}",
    "nav_msgs/msg/Path": f"geometry_msgs/PoseStamped[] poses\n{LINE}\nMSG: geometry_msgs/PoseStamped\n"
    f"geometry_msgs/Pose pose\n{LINE}\nMSG: geometry_msgs/Pose\ngeometry_msgs/Point position\n{LINE}\n"
    f"MSG: geometry_msgs/Point\n{POINT}",
}
TYPES = dict.fromkeys(("/y", "/r", "/u"), "std_msgs/msg/Float64")
TYPES |= {"/odom": "nav_msgs/msg/Odometry", "/plan": "nav_msgs/msg/Path", "/scan": "sensor_msgs/msg/LaserScan"}


def plain(message: Any) -> Any:
    if isinstance(message, SimpleNamespace):
        return {name: plain(value) for name, value in vars(message).items()}
    return [plain(value) for value in message] if isinstance(message, list) else message


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """The log as a recording."""
    writer_module: Any = pytest.importorskip("mcap_ros2.writer")
    found = tmp_path / "bag" / "run_0.mcap"
    found.parent.mkdir()
    with open(found, "wb") as stream, writer_module.Writer(stream) as writer:
        schemas = {name: writer.register_msgdef(name, text) for name, text in DEFINITIONS.items()}
        for topic, messages in a_log().items():
            for t, message in messages:
                time = int(t * 1e9)
                writer.write_message(topic, schemas[TYPES[topic]], plain(message), time, time)
    return found


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_is_the_same_from_a_bag(
    metric: str, file: Callable[[str], Path], bag: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value, where, _ = BY_HAND[metric]
    given = file(f"terms: [{{metric: {metric}, {where}}}]\n")
    assert cli.main(["score", str(bag), "--json", "--return", str(given)]) == 0
    assert json.loads(capsys.readouterr().out)["return"] == pytest.approx(value, abs=1e-6)  # (a scan is float32)


def test_a_bag_is_scored_without_moving_anything(
    file: Callable[[str], Path], bag: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "terms: [{metric: iae, of: y, against: r, weight: -1.0}, {metric: effort, of: u, weight: -0.1}]\n"
    for given in (bag, bag.parent):
        assert cli.main(["score", str(given), "--return", str(file(text))]) == 0
        shown = capsys.readouterr().out
        assert "return -4.71" in shown
        assert "19.5 Nm² s" in shown


def test_what_is_odd_about_a_bag_is_a_sentence_and_the_others_are_scored_all_the_same(
    file: Callable[[str], Path], bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, given = bag.read_bytes(), file("terms: [{metric: iae, of: y, against: r}]\n")
    odd = {
        "empty": (b"", "is an empty file"),
        "text": (b"no bag at all", "is no MCAP file"),
        "cut": (whole[: len(whole) // 2], "is cut off"),
        "start": (whole[:8], "is cut off"),
        "damaged": (whole[:60] + b"\xff" * 200 + whole[260:], "cannot be read as MCAP"),
        "db3": (b"SQLite format 3\0", "ros2 bag convert"),
    }
    for name, (content, words) in odd.items():
        (tmp_path / f"{name}.mcap").write_bytes(content)
        assert cli.main(["score", str(tmp_path / f"{name}.mcap"), str(bag), "--return", str(given)]) == 1
        shown = capsys.readouterr()
        assert words in shown.err
        assert shown.err.count("\n") == 1
        assert "return 2.76" in shown.out
    assert cli.main(["score", str(tmp_path / "nothing"), "--return", str(given)]) == 1
    assert "no .mcap file (ros2 bag record -s mcap writes one" in capsys.readouterr().err
    for signals, words in (
        (SIGNALS.replace("/y,", "/z,"), "has no topic /z; there is: /odom (nav_msgs/msg/Odometry), /plan"),
        (
            SIGNALS.replace("topic: /y,", "topic: /scan,"),
            "is of the type sensor_msgs/msg/LaserScan, not std_msgs",
        ),
        (SIGNALS.replace("field: data, unit: rad", "field: value, unit: rad"), "Float64 has no 'value'; it has data"),
    ):
        given.write_text(signals + "terms: [{metric: iae, of: y, against: r}]\n")
        assert cli.main(["score", str(bag), "--return", str(given)]) == 1
        assert words in capsys.readouterr().err


def test_an_empty_recording_says_so(
    file: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer_module: Any = pytest.importorskip("mcap_ros2.writer")
    with open(tmp_path / "none.mcap", "wb") as stream, writer_module.Writer(stream):
        pass
    given = file("terms: [{metric: iae, of: y, against: r}]\n")
    assert cli.main(["score", str(tmp_path / "none.mcap"), "--return", str(given)]) == 1
    assert "has no topic /y; there is: no topic at all" in capsys.readouterr().err
