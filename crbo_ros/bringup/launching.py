"""bringup.graph as a launch description, for the launch files (needs launch and launch_ros)."""

from __future__ import annotations

from typing import Any

from launch import LaunchContext, LaunchDescription  # type: ignore[attr-defined]  # (our folder launch/ hides it)
from launch.actions import DeclareLaunchArgument, EmitEvent, LogInfo, OpaqueFunction, RegisterEventHandler, TimerAction
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from crbo_ros.bringup.graph import (
    ARGUMENTS,
    CONFIG,
    LOG_LEVEL,
    NAMESPACE,
    RUNNER,
    RUNNERS,
    TASK_OPTIONS,
    NodeSpec,
    graph,
)
from crbo_ros.bringup.processes import Restarts, environment, new_key, share_key
from crbo_ros.nodes import ENDED
from crbo_ros.registry import TASKS

RESPAWN_DELAY = 1.0  # s


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
        values = {a.name: LaunchConfiguration(a.name).perform(context) for a in arguments}
        name = values.pop("env") if values["env"] in TASKS else task
        nodes = Nodes(values[NAMESPACE.name], values[LOG_LEVEL.name])
        specs = graph(name, values)
        nodes.share_key(specs[0])
        return [action for spec in specs for action in nodes.start(spec)]

    return LaunchDescription([*declared, OpaqueFunction(function=start)])


class Nodes:
    """The graph's nodes as launch actions, and what follows when one of them ends."""

    def __init__(self, namespace: str, log_level: str) -> None:
        self._namespace, self._log_level = namespace, log_level
        self._key, self._restarts = new_key(), Restarts()
        self._running: set[str] = set()  # runners

    def share_key(self, spec: NodeSpec) -> None:
        share_key(spec, self._key)

    def start(self, spec: NodeSpec) -> list[Any]:
        """The node, and what to do at its end."""
        parameters = spec.parameters
        if spec.executable == RUNNER:
            parameters = {**parameters, "exit_when_done": True}
            self._running.add(spec.name)
        node = LifecycleNode(
            package="crbo_ros",
            executable=spec.executable,
            name=spec.name,
            namespace=self._namespace,
            parameters=[str(spec.params_file), parameters],
            arguments=["--ros-args", "--log-level", self._log_level],
            additional_env=environment(spec, self._key),
            output="screen",
        )

        def on_exit(event: Any, context: LaunchContext) -> list[Any]:
            return [] if context.is_shutdown else self._ended(spec, int(event.returncode))

        return [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=on_exit))]

    def _ended(self, spec: NodeSpec, code: int) -> list[Any]:
        """An optimizer or a monitor that died is started again (launch's own respawn would do so for ever)."""
        if spec.executable == RUNNER:
            self._running.discard(spec.name)
            return [] if self._running else _shut_down("all runners have ended")
        if code == ENDED:  # somebody wanted that
            return []
        if line := self._restarts.allow(spec, code):
            return [LogInfo(msg=line), TimerAction(period=RESPAWN_DELAY, actions=self.start(spec))]
        return _shut_down(f"{spec.name} has ended (exit code {code}); nothing can run without it")


def _shut_down(reason: str) -> list[Any]:
    return [LogInfo(msg=reason), EmitEvent(event=Shutdown(reason=reason))]
