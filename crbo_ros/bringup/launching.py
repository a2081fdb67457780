"""bringup.graph as a launch description, for the launch files (needs launch and launch_ros)."""

from __future__ import annotations

import os
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from crbo_ros.bringup.graph import ARGUMENTS, CONFIG, LOG_LEVEL, NAMESPACE, RUNNER, RUNNERS, TASK_OPTIONS, graph
from crbo_ros.nodes import PARENT
from crbo_ros.registry import TASKS


def describe(task: str, **defaults: str) -> LaunchDescription:
    """The graph of a task with its arguments declared. When the last runner has ended, the launch ends.

    `defaults` of arguments; env:=pendulum and the like choose the task of that name.
    """
    arguments = (*ARGUMENTS, *TASK_OPTIONS, RUNNERS, NAMESPACE, CONFIG, LOG_LEVEL)
    declared = [
        DeclareLaunchArgument(a.name, default_value=defaults.get(a.name, a.default), description=a.description)
        for a in arguments
    ]

    def start(context: LaunchContext) -> list[Any]:
        given = {a.name: LaunchConfiguration(a.name).perform(context) for a in arguments}
        name = given.pop("env") if given["env"] in TASKS else task
        actions: list[Any] = []
        running = set()
        for spec in graph(name, given):
            node = LifecycleNode(
                package="crbo_ros",
                executable=spec.executable,
                name=spec.name,
                namespace=given[NAMESPACE.name],
                parameters=[str(spec.params_file), {**spec.parameters, "exit_when_done": True}]
                if spec.executable == RUNNER
                else [str(spec.params_file), spec.parameters],
                arguments=["--ros-args", "--log-level", given[LOG_LEVEL.name]],
                output="screen",
                additional_env={PARENT: str(os.getpid())},
            )
            actions.append(node)
            if spec.executable == RUNNER:
                running.add(node)
                actions.append(_end_with(node, running))
        return actions

    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def _end_with(node: LifecycleNode, running: set[LifecycleNode]) -> RegisterEventHandler:
    def on_exit(event: Any, context: LaunchContext) -> list[Any]:
        running.discard(node)
        return [] if running else [EmitEvent(event=Shutdown(reason="all runners have ended"))]

    return RegisterEventHandler(OnProcessExit(target_action=node, on_exit=on_exit))
