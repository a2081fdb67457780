import argparse
import builtins
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.commands import demo
from crbo_ros.errors import InvalidInput, MissingDependency
from crbo_ros.policies import demonstration
from crbo_ros.policies.dmp import DMP
from crbo_ros.tasks.basketball import Basketball, heuristic_demonstration

NAMES = [f"lbr_A{i}" for i in range(1, 8)]
SHUFFLED = [3, 0, 6, 1, 5, 2, 4]  # drivers do not promise an order


def run(*words: Any) -> Any:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return demo.run(parser.parse_args(["record", *map(str, words)]))


def movement(rest: float = 0.5, rate: float = 200.0) -> tuple[Any, Any]:
    """The heuristic throw with rest before and after, as a driver would publish it: time (M,), position (M, 7)."""
    t, q = heuristic_demonstration()
    time = np.arange(0.0, t[-1] + 2 * rest, 1.0 / rate)
    return time, np.stack([np.interp(time - rest, t, column) for column in q.T], axis=1)


def write_csv(path: Path, time: Any, position: Any, names: Any = NAMES, factor: float = 1.0) -> None:
    rows = [",".join(["time", *names])]
    rows += [",".join(map(repr, [float(t), *(factor * q).tolist()])) for t, q in zip(time, position, strict=True)]
    path.write_text("\n".join(rows) + "\n")


def encode(stamp: Any, names: Any, positions: Any, order: str = "<") -> Any:
    """sensor_msgs/msg/JointState in CDR, written out by hand."""
    body = bytearray()

    def put(kind: Any, size: Any, value: Any) -> None:
        body.extend(b"\0" * (-len(body) % size))
        body.extend(struct.pack(order + kind, value))

    def text(value: Any) -> None:
        put("I", 4, len(value) + 1)
        body.extend(value.encode() + b"\0")

    put("i", 4, int(stamp))
    put("I", 4, round((stamp - int(stamp)) * 1e9))
    text("base")
    put("I", 4, len(names))
    for name in names:
        text(name)
    for values in (positions, (), ()):
        put("I", 4, len(values))
        for value in values:
            put("d", 8, value)
    return bytes([0, order == "<", 0, 0]) + bytes(body)


def messages(stamp: bool = True) -> Iterator[tuple[Any, ...]]:
    for t, q in zip(*movement(), strict=True):
        yield t, encode(100.0 + t if stamp else 0.0, [NAMES[i] for i in SHUFFLED], q[SHUFFLED])
        yield t, encode(100.0 + t, ["finger_1", "finger_2"], [0.0, 0.0])  # another driver on the same topic


def write_db3(folder: Path, stamp: bool = True) -> None:
    folder.mkdir()
    connection = sqlite3.connect(folder / "bag_0.db3")
    connection.execute("CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT, type TEXT)")
    connection.execute("CREATE TABLE messages (topic_id INTEGER, timestamp INTEGER, data BLOB)")
    connection.execute("INSERT INTO topics VALUES (1, '/joint_states', 'sensor_msgs/msg/JointState')")
    connection.execute("INSERT INTO topics VALUES (2, '/rosout', 'rcl_interfaces/msg/Log')")
    connection.executemany(
        "INSERT INTO messages VALUES (1, ?, ?)", [(int(1e9 * (50 + t)), data) for t, data in messages(stamp)]
    )
    connection.commit()
    connection.close()


def write_mcap(path: Path) -> None:
    writer_module = pytest.importorskip("mcap.writer")
    with open(path, "wb") as file:
        writer = writer_module.Writer(file)
        writer.start(profile="ros2", library="test")
        schema = writer.register_schema(name="sensor_msgs/msg/JointState", encoding="ros2msg", data=b"")
        channel = writer.register_channel(topic="/joint_states", message_encoding="cdr", schema_id=schema)
        for t, data in messages():
            writer.add_message(channel, log_time=int(1e9 * t), publish_time=int(1e9 * t), data=data)
        writer.finish()


def assert_is_the_throw(path: Path) -> None:
    """The file's primitive replays the heuristic throw, and the task takes it."""
    t, q = heuristic_demonstration()
    dmp, extra = DMP.load(path)
    assert dmp.duration == pytest.approx(t[-1], abs=0.15)  # the slowest bits at both ends count as rest
    s = np.linspace(0.1, 0.9, 50)
    ours = np.stack([np.interp(s, dmp.time / dmp.time[-1], c) for c in dmp.rollout().position.T], axis=1)
    theirs = np.stack([np.interp(s, t / t[-1], c) for c in q.T], axis=1)
    assert np.abs(ours - theirs).max() < 0.1
    assert Basketball(demonstration=path).release_time == extra["release"]


def test_a_csv_file_becomes_a_first_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(tmp_path / "throw.csv", *movement())
    assert run("--csv", tmp_path / "throw.csv", "--output", tmp_path / "demo.npz", "--duration", 1.4) == 0
    assert_is_the_throw(tmp_path / "demo.npz")
    assert "deg RMS" in capsys.readouterr().out


def test_degrees_are_converted(tmp_path: Path) -> None:
    write_csv(tmp_path / "throw.csv", *movement(), factor=180.0 / np.pi)
    run("--csv", tmp_path / "throw.csv", "--degrees", "--output", tmp_path / "demo.npz", "--duration", 1.4)
    assert_is_the_throw(tmp_path / "demo.npz")


@pytest.mark.parametrize("stamp", [True, False])
def test_a_bag_becomes_a_first_policy_without_ros(tmp_path: Path, stamp: bool) -> None:
    write_db3(tmp_path / "bag", stamp)
    run("--bag", tmp_path / "bag", "--output", tmp_path / "demo.npz", "--duration", 1.4, "--release", 0.95)
    assert_is_the_throw(tmp_path / "demo.npz")


def test_an_mcap_bag_becomes_a_first_policy(tmp_path: Path) -> None:
    write_mcap(tmp_path / "throw.mcap")
    run("--bag", tmp_path / "throw.mcap", "--output", tmp_path / "demo.npz", "--duration", 1.4)
    assert_is_the_throw(tmp_path / "demo.npz")


@pytest.mark.parametrize("order", ["<", ">"])
def test_messages_are_decoded_in_both_byte_orders(order: str) -> None:
    sample = demonstration.decode_joint_state(encode(7.25, ["a", "bcd"], [1.5, -2.5], order), 0.0)
    assert sample == demonstration.Sample(7.25, ("a", "bcd"), (1.5, -2.5))
    assert demonstration.decode_joint_state(encode(0.0, ["a"], [], order), 3.0) == demonstration.Sample(3.0, ("a",), ())


def test_decoding_agrees_with_another_implementation_of_cdr() -> None:
    dynamic = pytest.importorskip("mcap_ros2._dynamic")
    definition = (
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n" + "=" * 80
        + "\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n" + "=" * 80
        + "\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
    )  # fmt: skip
    make = dynamic.serialize_dynamic("sensor_msgs/msg/JointState", definition)["sensor_msgs/msg/JointState"]
    stamp = {"sec": 12, "nanosec": 500_000_000}
    data = make(
        {
            "header": {"stamp": stamp, "frame_id": "world"},
            "name": NAMES,
            "position": list(range(7)),
            "velocity": [0.5] * 7,
            "effort": [],
        }
    )
    assert demonstration.decode_joint_state(data, 0.0) == demonstration.Sample(12.5, tuple(NAMES), tuple(range(7)))


def test_named_joints_are_taken_in_the_named_order(tmp_path: Path) -> None:
    write_csv(tmp_path / "throw.csv", *movement(), names=list("gfedcba"))
    recording = demonstration.read_csv(tmp_path / "throw.csv", tuple("gfedcba"))
    np.testing.assert_array_equal(recording.position, movement()[1])
    unnamed = demonstration.read_csv(tmp_path / "throw.csv")
    assert unnamed.joints == tuple("abcdefg")


def test_joint_10_comes_after_joint_2() -> None:
    sample = demonstration.Sample(0.0, ("joint_10", "joint_2"), (1.0, 2.0))
    assert demonstration._only_joints([sample], 2, "x") == ("joint_2", "joint_10")


def test_a_movement_faster_than_the_arm_is_not_written_and_the_advice_helps(tmp_path: Path) -> None:
    write_csv(tmp_path / "throw.csv", *movement())
    words = ["--csv", tmp_path / "throw.csv", "--output", tmp_path / "demo.npz"]
    with pytest.raises(InvalidInput, match="use --duration") as error:
        run(*words, "--duration", 0.6)
    assert not (tmp_path / "demo.npz").exists()
    advice = float(str(error.value).split("--duration ")[1].split()[0])
    assert run(*words, "--duration", advice) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a,b\n1,2\n", "time column"),
        ("time,a\n0,1\n1,x\n", "line 3"),
        ("time,a\n0,1\n1\n", "line 3"),
        ("time,a,b\n0,1,2\n1,2,3\n", "--joints"),
        ("time," + ",".join(NAMES) + "\n" + "\n".join(f"{i},0,0,0,0,0,0,0" for i in range(5)), "only 5 samples"),
        ("time," + ",".join(NAMES) + "\n" + "\n".join(f"{i},0,0,0,0,0,0,0" for i in range(50)), "no movement"),
        ("time," + ",".join(NAMES) + "\n" + "\n".join(f"{i},nan,0,0,0,0,0,0" for i in range(50)), "NaN"),
    ],
)
def test_a_bad_csv_file_is_refused_with_the_reason(tmp_path: Path, text: Any, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        run("--csv", tmp_path / "bad.csv", "--output", tmp_path / "demo.npz")
    assert not (tmp_path / "demo.npz").exists()


def test_a_bad_bag_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text.db3").write_text("no database")
    with pytest.raises(InvalidInput, match="not a bag"):
        run("--bag", tmp_path / "text.db3")
    (tmp_path / "text.mcap").write_text("no recording")
    with pytest.raises((InvalidInput, MissingDependency), match=r"text\.mcap"):
        run("--bag", tmp_path / "text.mcap")
    with pytest.raises(InvalidInput, match=r"no \.db3"):
        run("--bag", tmp_path / "absent")
    write_db3(tmp_path / "bag")
    with pytest.raises(InvalidInput, match="/other"):
        run("--bag", tmp_path / "bag", "--bag-topic", "/other")


def test_six_joints_or_a_release_outside_the_movement_are_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "throw.csv", *movement())
    with pytest.raises(InvalidInput, match="7 different names"):
        run("--csv", tmp_path / "throw.csv", "--joints", "a,b,c,d,e,f")
    with pytest.raises(InvalidInput, match="--release"):
        run("--csv", tmp_path / "throw.csv", "--duration", 1.4, "--release", 1.5)


def test_a_topic_without_ros_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("rclpy"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency, match="--csv or --bag"):
        run("--topic", "/joint_states", "--seconds", 1)


@pytest.mark.ros
def test_a_live_topic_becomes_a_first_policy(tmp_path: Path) -> None:
    rclpy = pytest.importorskip("rclpy")
    from sensor_msgs.msg import JointState

    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("fake_arm", context=context)
    publisher = node.create_publisher(JointState, "/demo_test/joint_states", 10)
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set() and publisher.get_subscription_count() == 0:
            time.sleep(0.05)
        for t, q in zip(*movement(rest=1.0), strict=True):
            message = JointState(name=NAMES, position=q.tolist())
            message.header.stamp.sec, message.header.stamp.nanosec = int(t) + 1, int(1e9 * (t % 1.0))
            publisher.publish(message)
            if stop.wait(0.002):
                break

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        run(
            "--topic", "/demo_test/joint_states", "--seconds", 4, "--duration", 1.4, "--output", tmp_path / "demo.npz"
        )  # fmt: skip
    finally:
        stop.set()
        thread.join()
        node.destroy_node()
        context.try_shutdown()
    assert_is_the_throw(tmp_path / "demo.npz")


@pytest.mark.ros
def test_a_silent_topic_is_reported_in_time() -> None:
    pytest.importorskip("rclpy")
    with pytest.raises(InvalidInput, match="is the driver running"):
        demonstration.record_topic("/demo_test/silent", wait=0.5)
