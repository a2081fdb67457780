"""A recorded movement: joint positions over time from a CSV file, a ROS 2 bag or a live JointState topic.

Bags are read without ROS: .db3 by sqlite3, .mcap by the `mcap` package, and the one message type that is needed by the
few lines of CDR below. So a demonstration that was recorded on the robot can be fitted anywhere.
"""

from __future__ import annotations

import csv
import re
import sqlite3
import struct
import time as clock
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import InvalidInput, MissingDependency

Array = NDArray[np.float64]

JOINT_STATE = "sensor_msgs/msg/JointState"
MOVING = 0.02  # rad/s: slower than this at either end is not part of the movement
TIME_NAMES = ("time", "t", "stamp", "timestamp")


@dataclass(frozen=True)
class Recording:
    """time (M,) in s, increasing; position (M, joints) in rad."""

    time: Array
    position: Array
    joints: tuple[str, ...]

    def trimmed(self) -> Recording:
        """Without the rest before and after the movement; starts at time 0."""
        speed = np.abs(np.gradient(_smooth(self.position), self.time, axis=0)).max(axis=1)
        moving = np.flatnonzero(speed > MOVING)
        if moving.size < 2:
            raise InvalidInput(f"the recording of {self.time[-1] - self.time[0]:.1f} s holds no movement")
        part = slice(max(moving[0] - 1, 0), moving[-1] + 2)
        return Recording(self.time[part] - self.time[part][0], self.position[part], self.joints)


def _smooth(position: Array, width: int = 5) -> Array:
    """Moving average, so that encoder noise does not look like movement; the ends are repeated."""
    padded = np.pad(position, ((width // 2, width // 2), (0, 0)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, width, axis=0).mean(axis=-1)


@dataclass(frozen=True)
class Sample:
    """One JointState message: time in s, joint names and positions in rad."""

    time: float
    names: tuple[str, ...]
    positions: tuple[float, ...]


def collect(samples: list[Sample], joints: tuple[str, ...] | None, n_joints: int, source: str) -> Recording:
    """The samples that hold all wanted joints, in that order. Messages of other joints (a gripper) are passed over."""
    joints = joints or _only_joints(samples, n_joints, source)
    rows = []
    for sample in samples:
        if len(sample.names) == len(sample.positions) and set(joints) <= set(sample.names):
            angle = dict(zip(sample.names, sample.positions, strict=True))
            rows.append((sample.time, *(angle[joint] for joint in joints)))
    if not rows:
        seen = sorted({name for sample in samples for name in sample.names})
        raise InvalidInput(
            f"{source}: no message holds the joints {', '.join(joints)}; seen: {', '.join(seen) or 'none'}"
        )
    table = np.array(sorted(rows))
    table = table[np.concatenate([[True], np.diff(table[:, 0]) > 0.0])]  # a stamp that comes twice counts once
    if not np.all(np.isfinite(table)):
        raise InvalidInput(f"{source}: the recording holds NaN or infinite values")
    if len(table) < 10:
        raise InvalidInput(f"{source}: only {len(table)} samples of {', '.join(joints)}")
    return Recording(table[:, 0] - table[0, 0], table[:, 1:], joints)


def _only_joints(samples: list[Sample], n_joints: int, source: str) -> tuple[str, ...]:
    """The joints' names where there is no doubt: all messages of the wanted size name the same ones."""
    found = {tuple(sorted(sample.names, key=_natural)) for sample in samples if len(sample.names) == n_joints}
    if len(found) != 1:
        seen = sorted({name for sample in samples for name in sample.names})
        raise InvalidInput(
            f"{source}: cannot tell which {n_joints} joints are the arm's; name them in their order with --joints "
            f"(seen: {', '.join(seen) or 'none'})"
        )
    return found.pop()


def _natural(name: str) -> list[tuple[int, str]]:
    """joint_2 before joint_10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


# -- CSV ------------------------------------------------------------------------------------------


def read_csv(
    path: Path, joints: tuple[str, ...] | None = None, *, n_joints: int = 7, degrees: bool = False
) -> Recording:
    """A header with a time column (s) and a column for each joint, then one row a sample."""
    try:
        with open(path, newline="") as file:
            header, *rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path}: cannot be read ({error})") from None
    except ValueError:
        raise InvalidInput(f"{path}: is empty") from None
    header = [name.strip() for name in header]
    times = [i for i, name in enumerate(header) if name.lower() in TIME_NAMES]
    if len(times) != 1:
        raise InvalidInput(
            f"{path}: needs one time column ({', '.join(TIME_NAMES)}); the header is {', '.join(header)}"
        )
    names = tuple(name for i, name in enumerate(header) if i != times[0])
    factor = np.pi / 180.0 if degrees else 1.0
    samples = []
    for number, row in enumerate(rows, start=2):
        try:
            values = [float(cell) for cell in row]
            if len(values) != len(header):
                raise ValueError(f"{len(values)} values for {len(header)} columns")
        except ValueError as error:
            raise InvalidInput(f"{path}, line {number}: {error}") from None
        angles = tuple(factor * value for i, value in enumerate(values) if i != times[0])
        samples.append(Sample(values[times[0]], names, angles))
    return collect(samples, joints, n_joints, str(path))


# -- bags -----------------------------------------------------------------------------------------


def decode_joint_state(data: bytes, received: float) -> Sample:
    """sensor_msgs/msg/JointState in CDR. `received` (s) stands in for an empty stamp."""
    order = "<" if data[1] & 1 else ">"
    body, at = data[4:], 0

    def take(kind: str, size: int, count: int = 1) -> tuple[Any, ...]:
        nonlocal at
        at += -at % size  # CDR aligns every number to its own size
        values = struct.unpack_from(f"{order}{count}{kind}", body, at)
        at += size * count
        return values

    def text() -> str:
        nonlocal at
        (length,) = take("I", 4)
        at += length
        return body[at - length : at].rstrip(b"\0").decode()

    stamp = take("i", 4)[0] + 1e-9 * take("I", 4)[0]
    text()  # frame_id
    names = tuple(text() for _ in range(take("I", 4)[0]))
    (count,) = take("I", 4)
    return Sample(stamp or received, names, take("d", 8, count) if count else ())


def read_bag(path: Path, topic: str, joints: tuple[str, ...] | None = None, *, n_joints: int = 7) -> Recording:
    """A bag's folder, or a .db3 or .mcap file of one."""
    files = [path] if path.is_file() else sorted([*path.glob("*.db3"), *path.glob("*.mcap")])
    if not files:
        raise InvalidInput(f"{path}: holds no .db3 or .mcap file")
    samples = []
    for file in files:
        try:
            messages = _mcap_messages(file, topic) if file.suffix == ".mcap" else _db3_messages(file, topic)
            samples += [decode_joint_state(data, received) for data, received in messages]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{file}: a message of {topic} is no {JOINT_STATE} ({error})") from None
    if not samples:
        raise InvalidInput(f"{path}: no {JOINT_STATE} on the topic {topic}")
    return collect(samples, joints, n_joints, str(path))


def _db3_messages(path: Path, topic: str) -> list[tuple[bytes, float]]:
    query = (
        "SELECT messages.data, messages.timestamp FROM messages JOIN topics ON topics.id = messages.topic_id "
        "WHERE topics.name = ? AND topics.type = ? ORDER BY messages.timestamp"
    )
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return [(data, 1e-9 * stamp) for data, stamp in connection.execute(query, (topic, JOINT_STATE))]
    except sqlite3.Error as error:
        raise InvalidInput(f"{path}: not a bag ({error})") from None


def _mcap_messages(path: Path, topic: str) -> Iterator[tuple[bytes, float]]:
    try:
        from mcap.exceptions import McapError
        from mcap.reader import make_reader
    except ImportError:
        raise MissingDependency(f"{path}: reading .mcap needs the mcap package: pip install mcap") from None
    try:
        with open(path, "rb") as file:
            for schema, _, message in make_reader(file).iter_messages(topics=[topic]):
                if schema is not None and schema.name == JOINT_STATE:
                    yield message.data, 1e-9 * message.log_time
    except (McapError, OSError) as error:
        raise InvalidInput(f"{path}: not a bag ({error!r})") from None


# -- live -----------------------------------------------------------------------------------------


def record_topic(
    topic: str,
    joints: tuple[str, ...] | None = None,
    *,
    n_joints: int = 7,
    seconds: float | None = None,
    wait: float = 10.0,
) -> Recording:
    """Listen to a topic for `seconds` from its first message, or until Ctrl-C; at most `wait` s for the first one."""
    try:
        import rclpy
        from rclpy.context import Context
        from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
        from rclpy.qos import qos_profile_sensor_data
        from sensor_msgs.msg import JointState
    except ImportError as error:
        raise MissingDependency(
            f"recording from a topic needs ROS 2 ({error}): source it (or run ./setup), or use --csv or --bag"
        ) from None
    samples: list[Sample] = []

    def keep(message: JointState) -> None:
        stamp = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        samples.append(Sample(stamp or clock.monotonic(), tuple(message.name), tuple(message.position)))

    context = Context()
    rclpy.init(context=context)
    node = rclpy.create_node("crbo_demonstration", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    # Best effort, as sensor drivers publish: such a subscription also hears reliable publishers.
    node.create_subscription(JointState, topic, keep, qos_profile_sensor_data)
    started = first = clock.monotonic()
    try:
        while seconds is None or not samples or clock.monotonic() - first < seconds:
            executor.spin_once(timeout_sec=0.1)
            if not samples:
                first = clock.monotonic()
                if first - started > wait:
                    raise InvalidInput(f"{topic}: no {JOINT_STATE} within {wait:g} s; is the driver running?")
    except (KeyboardInterrupt, ExternalShutdownException):
        pass  # the person is done
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()
    return collect(samples, joints, n_joints, topic)
