"""Messages filled from plain values, against real message classes."""

import concurrent.futures
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy")
pytestmark = pytest.mark.ros

from crbo_ros.errors import InvalidInput, PlantError  # noqa: E402
from crbo_ros.ros.link import NoAnswer, RosLink, fill, interface  # noqa: E402


def test_a_message_is_filled_with_nested_fields_lists_and_lists_of_messages() -> None:
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
def test_a_wrong_field_is_named(type_: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        fill(interface(type_)(), fields)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(PlantError, match="nowhere/msg/Nothing is not known"):
        interface("nowhere/msg/Nothing")


def silent_link(silent: Any) -> tuple[Any, ...]:
    """A link to a service that does not answer the first `silent` questions, what was asked and what was logged."""
    link: Any = RosLink("test")
    asked: list[Any] = []
    logged: list[str] = []

    def call_async(request: Any) -> Any:
        asked.append(request)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if len(asked) > silent:
            future.set_result("answer")
        return future

    client = SimpleNamespace(
        service_is_ready=lambda: True, call_async=call_async, remove_pending_request=lambda future: None
    )
    link.client = lambda type_, name: client
    link.node = SimpleNamespace(get_logger=lambda: SimpleNamespace(warning=logged.append))
    return link, asked, logged


def test_a_question_without_an_answer_is_asked_again_and_each_time_said() -> None:
    link, asked, logged = silent_link(2)
    assert link.ask("std_srvs/srv/Trigger", "/slow", "question", 0.3) == "answer"
    assert asked == ["question"] * 3
    assert logged == [f"the service /slow gave no answer within 0.1 s; asked again, {left} more" for left in (2, 1)]


def test_a_command_is_given_once_and_silence_is_an_error() -> None:
    link, asked, logged = silent_link(1)
    with pytest.raises(NoAnswer, match=r"/slow gave no answer within 0\.1 s"):
        link.call("std_srvs/srv/Trigger", "/slow", "command", 0.1)
    assert (len(asked), logged) == (1, [])


def test_a_link_that_never_gets_an_answer_says_so_in_the_end() -> None:
    link, asked, logged = silent_link(99)
    with pytest.raises(NoAnswer):
        link.ask("std_srvs/srv/Trigger", "/slow", "question", 0.3)
    assert (len(asked), len(logged)) == (3, 2)


def test_an_action_is_destroyed_when_nobody_waits_for_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from rclpy.action.client import ActionClient

    from crbo_ros.plants.ros.goal import ActionGoal

    spinning: list[bool] = []
    destroy: Any = ActionClient.destroy
    with RosLink("closing") as link:
        spinner = link._spinner

        def watched(own: Any) -> None:
            spinning.append(spinner.alive)
            destroy(own)

        monkeypatch.setattr(ActionClient, "destroy", watched)
        ActionGoal(link, "test_msgs/action/Fibonacci", "fibonacci")
    assert spinning[0] is False
