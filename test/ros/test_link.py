"""Messages filled from plain values, against real message classes."""

import pytest

pytest.importorskip("rclpy")
pytestmark = pytest.mark.ros

from crbo_ros.errors import InvalidInput, PlantError  # noqa: E402
from crbo_ros.ros.link import fill, interface  # noqa: E402


def test_a_message_is_filled_with_nested_fields_lists_and_lists_of_messages():
    message = interface("trajectory_msgs/msg/JointTrajectory")()
    fill(message, {
        "header": {"frame_id": "base"},
        "joint_names": ["a", "b"],
        "points": [{"positions": [1, 2.5], "time_from_start": {"sec": 3}}],
    })  # fmt: skip
    assert message.header.frame_id == "base"
    assert list(message.joint_names) == ["a", "b"]
    assert list(message.points[0].positions) == [1.0, 2.5]
    assert message.points[0].time_from_start.sec == 3
    imu = fill(interface("sensor_msgs/msg/Imu")(), {"orientation_covariance": [0] * 9})
    assert list(imu.orientation_covariance) == [0.0] * 9


@pytest.mark.parametrize(
    ("type_", "fields", "reason"),
    [
        ("std_msgs/msg/Float64", {"date": 1.0}, "date: Float64 has no such field; it has: data"),
        ("std_msgs/msg/Float64", {"data": "1"}, "data: '1' is not a double"),
        ("std_msgs/msg/Float64", {"data": True}, "data: True is not a double"),
        ("std_msgs/msg/Int32", {"data": 1.5}, "data: 1.5 is not a int32"),
        ("std_msgs/msg/Bool", {"data": 1}, "data: 1 is not a boolean"),
        ("std_msgs/msg/Float64", {"data": {"x": 1}}, "data: is a double, not fields"),
        ("std_msgs/msg/Header", {"stamp": {"sec": [1]}}, r"stamp.sec: \[1\] is not a int32"),
        ("sensor_msgs/msg/Imu", {"orientation_covariance": [0.0] * 8}, "orientation_covariance: .* is not a double"),
        ("trajectory_msgs/msg/JointTrajectory", {"points": [{"x": 1}]}, r"points\[0\].x: .* has no such field"),
        ("trajectory_msgs/msg/JointTrajectory", {"joint_names": [1]}, "joint_names: 1 is not a string"),
    ],
)
def test_a_wrong_field_is_named(type_, fields, reason):
    with pytest.raises(InvalidInput, match=reason):
        fill(interface(type_)(), fields)


def test_an_unknown_type_is_named():
    with pytest.raises(PlantError, match="nowhere/msg/Nothing is not known"):
        interface("nowhere/msg/Nothing")
