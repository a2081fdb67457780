"""A node with a gain, an integer and an action (test_msgs/Fibonacci) whose result depends on them; goals take time."""

import time
from typing import Any

import rclpy
from rcl_interfaces.msg import SetParametersResult
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from std_srvs.srv import Trigger
from test_msgs.action import Fibonacci


def main() -> None:
    rclpy.init()
    node = rclpy.create_node("worker")
    node.declare_parameter("gain", 3.0)
    node.declare_parameter("count", 5)
    node.declare_parameter("clamped", 1.0)
    node.declare_parameter("label", "text")
    state = {"cancelled": 0, "stopped": 0}

    def check(parameters: Any) -> SetParametersResult:
        bad = [p.name for p in parameters if p.name == "gain" and p.value > 8.0]
        return SetParametersResult(successful=not bad, reason="gain is above what the motor takes" if bad else "")

    def clamp(parameters: Any) -> Any:
        for p in parameters:
            if p.name == "clamped" and p.value > 2.0:
                p._value = 2.0
        return parameters

    def execute(goal: Any) -> Any:
        for _ in range(goal.request.order * 10):
            if goal.is_cancel_requested:
                state["cancelled"] += 1
                goal.canceled()
                return Fibonacci.Result()
            time.sleep(0.01)
        gain, count = node.get_parameter("gain").value, node.get_parameter("count").value
        if goal.request.order == 0:
            goal.abort()
        else:
            goal.succeed()
        return Fibonacci.Result(sequence=[round(100 * gain), count])

    def say(request: Any, response: Any) -> Any:
        response.success, response.message = True, str(state["cancelled"])
        return response

    def stop(request: Any, response: Any) -> Any:
        state["stopped"] += 1
        response.success, response.message = True, str(state["stopped"])
        return response

    def stops(request: Any, response: Any) -> Any:
        response.success, response.message = True, str(state["stopped"])
        return response

    node.add_on_set_parameters_callback(check)
    node.add_pre_set_parameters_callback(clamp)
    group = ReentrantCallbackGroup()
    server = ActionServer(
        node, Fibonacci, "~/work", execute, callback_group=group, cancel_callback=lambda _: CancelResponse.ACCEPT
    )
    for name, callback in {"cancelled": say, "stop": stop, "stops": stops}.items():
        node.create_service(Trigger, f"~/{name}", callback, callback_group=group)
    node.create_timer(0.2, lambda: None)
    executor = MultiThreadedExecutor(num_threads=4)
    executor.add_node(node)
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        server.destroy()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
