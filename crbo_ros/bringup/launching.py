"""bringup.graph as a launch description, for the launch files (needs launch and launch_ros)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from launch import LaunchContext, LaunchDescription  # type: ignore[attr-defined]  # (our folder launch/ hides it)
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit, OnShutdown
from launch.events import Shutdown, matches_action
from launch.events.process import ShutdownProcess
from launch.substitution import Substitution
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from crbo_ros import checks
from crbo_ros.bringup.graph import CONFIG, EVERY, RUNNER, Argument, NodeSpec, choices, in_force, with_task_options
from crbo_ros.bringup.plan import Plan, make_plan, save_plan
from crbo_ros.bringup.processes import Restarts, enclave, environment, new_key, share_key, withdraw_key
from crbo_ros.errors import CrboError, InvalidInput
from crbo_ros.home import home
from crbo_ros.nodes import ENDED, STUCK
from crbo_ros.protocol.manifest import recorded_plan
from crbo_ros.registry import TASKS

RESPAWN_DELAY = 1.0  # s
EVALUATE = Argument("evaluate", "rollouts of the best policy at the end (simulations; 0: none)", type=int, default="10")
REPORT = Argument("report", "write report.html and report.png at the end (true, false)", type=bool, default="true")


class InForce(Substitution):  # type: ignore[misc]
    """An argument's default: `ros2 launch --show-args` shows the value in force. It stands for the config's value."""

    def __init__(self, task: str, argument: Argument, value: str) -> None:
        super().__init__()
        self.task, self.argument, self.value = task, argument, value

    def describe(self) -> str:
        return f"'{self.value}'"

    def perform(self, context: LaunchContext) -> str:
        """Empty, or, where a value must be one of the choices, that of the parameter file that is used."""
        if not choices(self.argument, self.task):
            return ""
        file = context.launch_configurations.get(CONFIG.name, "")
        return in_force(self.task, file).get(self.argument.name, self.value) if file else self.value


def describe(task: str, **defaults: str) -> LaunchDescription:
    """The graph of a task with its arguments declared. When the last runner has ended, it is summed up, and the launch
    ends. `defaults` of arguments; env:=pendulum and the like choose the task of that name.
    """
    values = in_force(task) | {a.name: a.default for a in (EVALUATE, REPORT)} | defaults
    ordered = sorted((*EVERY, EVALUATE, REPORT), key=lambda a: a.name != CONFIG.name)  # others' defaults depend on it
    declared = [
        DeclareLaunchArgument(
            a.name,
            default_value=defaults.get(a.name) or [InForce(task, a, values[a.name])],
            description=a.description,
            choices=choices(a, task) or None,
        )
        for a in ordered
    ]

    def start(context: LaunchContext) -> list[Any]:
        given = {a.name: LaunchConfiguration(a.name).perform(context) for a in ordered}
        name = given.pop("env") if given["env"] in TASKS else task
        if not given.get("env") and name != task and given["plant"] == values["plant"]:
            given["plant"] = ""
        try:
            _refuse_misspelt(context.launch_configurations, [a.name for a in ordered])
            evaluate = checks.evaluations(given[EVALUATE.name] or EVALUATE.default)
            plan = make_plan(name, with_task_options(given))
            save_plan(plan)
        except CrboError as error:  # launch says it once, starts nothing, and ends with exit code 1
            raise RuntimeError(str(error)) from None
        nodes = Nodes(plan, str(evaluate), given[REPORT.name] != "false")
        return [LogInfo(msg=nodes.greeting), nodes.share_key(), *(a for spec in plan.specs for a in nodes.start(spec))]

    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def _refuse_misspelt(given: Iterable[str], known: list[str]) -> None:
    """launch takes any argument silently, `epsiodes:=5` too. (Others may be meant for a file that includes ours.)"""
    for name in given:
        if name not in known and (meant := get_close_matches(name, known, 1, 0.8)):
            raise InvalidInput(f"there is no argument {name}; is {meant[0]} meant? (--show-args lists them all)")


class Nodes:
    """The graph's nodes as launch actions, and what follows when one of them ends."""

    def __init__(self, plan: Plan, evaluate: str = "0", report: bool = False) -> None:
        self._plan, self._evaluate, self._report = plan, evaluate, report
        self._key, self._restarts = new_key(), Restarts()
        self._alive: dict[str, Any] = {}  # name -> its action
        self._ending = ""  # what follows when all have ended: "summary", or why it failed

    @property
    def greeting(self) -> str:
        plan = self._plan
        return f"experiment {plan.folder.name} in {plan.folder}, namespace /{plan.namespace}"

    def share_key(self) -> Any:
        """It lies in the experiment's folder until the launch ends."""
        spec = self._plan.specs[0]
        share_key(spec, self._key)

        def withdraw(event: Any, context: LaunchContext) -> None:
            withdraw_key(spec, self._key)

        return RegisterEventHandler(OnShutdown(on_shutdown=withdraw))

    def start(self, spec: NodeSpec) -> list[Any]:
        """The node, and what to do at its end."""
        node = LifecycleNode(
            package="crbo_ros",
            executable=spec.executable,
            name=spec.name,
            namespace=self._plan.namespace,
            parameters=[str(spec.params_file), spec.parameters],
            remappings=self._plan.remap,
            arguments=["--ros-args", "--log-level", self._plan.log_level, *enclave(spec)],
            additional_env=environment(spec, self._key),
            output="screen",
        )
        self._alive[spec.name] = node

        def on_exit(event: Any, context: LaunchContext) -> list[Any]:
            return [] if context.is_shutdown else self._ended(spec, int(event.returncode))

        return [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=on_exit))]

    def _ended(self, spec: NodeSpec, code: int) -> list[Any]:
        """An optimizer or a monitor that died is started again (launch's own respawn would do so for ever)."""
        del self._alive[spec.name]
        if not self._ending:
            if spec.executable != RUNNER and code == ENDED:  # somebody wanted that
                return []
            if line := self._restarts.allow(spec, code):
                return [LogInfo(msg=line), TimerAction(period=RESPAWN_DELAY, actions=self.start(spec))]
            if spec.executable != RUNNER or code not in (ENDED, STUCK):
                return _fail(f"{spec.name} has ended (exit code {code}); nothing can run without it")
            if any(other.executable == RUNNER and other.name in self._alive for other in self._plan.specs):
                return []
            self._ending = "summary"
            others = [EmitEvent(event=ShutdownProcess(process_matcher=matches_action(n))) for n in self._alive.values()]
            return [LogInfo(msg="all runners have ended"), *others] if others else self._sum_up()
        return [] if self._alive else self._sum_up()

    def _sum_up(self) -> list[Any]:
        """In a process of its own: best.json is there, the stores are closed."""
        line = [sys.executable, "-m", "crbo_ros.cli", "summary", str(self._plan.folder)]
        line += ["--evaluate", self._evaluate, *([] if self._report else ["--no-report"])]
        summary = ExecuteProcess(cmd=line, name="summary", output="screen", emulate_tty=False)

        def on_exit(event: Any, context: LaunchContext) -> list[Any]:
            if event.returncode:
                return _fail("there is no summary")
            return [EmitEvent(event=Shutdown(reason="the run is over"))]

        return [summary, RegisterEventHandler(OnProcessExit(target_action=summary, on_exit=on_exit))]


def _fail(reason: str) -> list[Any]:
    """Launch says why, ends what still runs, and its exit code is 1."""

    def fail(context: LaunchContext) -> list[Any]:
        raise RuntimeError(reason)

    return [OpaqueFunction(function=fail)]


def accept() -> LaunchDescription:
    """`crbo accept` as a launch description; its exit code is 1 where the new policy is not accepted."""
    words = {
        "experiment": "name of the experiment, or its folder",
        "experiments_dir": "where experiments are kept (default: CRBO_HOME, or crbo_ros in ROS_HOME)",
        "level": "how often a wrong answer is acceptable",
        "margin": "a gain that would not be worth it (default: half of what the experiment promises)",
        "rollouts": "at most so many in all",
        "by": "who signs (default: the user)",
    }
    defaults = {"experiments_dir": "", "level": "0.05", "margin": "", "rollouts": "100", "by": ""}
    declared = [DeclareLaunchArgument(n, default_value=defaults.get(n), description=d) for n, d in words.items()]

    def start(context: LaunchContext) -> list[Any]:
        given = {name: LaunchConfiguration(name).perform(context) for name in words}
        try:
            _refuse_misspelt(context.launch_configurations, list(words))
            place = checks.path(given["experiment"], "experiment")
            folder = place if place.is_dir() else home(given["experiments_dir"]) / place
            if not folder.is_dir():
                raise InvalidInput(f"there is no experiment {folder.name} in {folder.parent}")
            recorded_plan(folder)
        except CrboError as error:
            raise RuntimeError(str(error)) from None
        line = [sys.executable, "-u", "-m", "crbo_ros.cli", "accept", given.pop("experiment")]
        line += [word for n, v in given.items() if v for word in ("--" + n.replace("_", "-"), v)]
        process = ExecuteProcess(cmd=line, name="accept", output="screen", emulate_tty=False)

        def on_exit(event: Any, context: LaunchContext) -> list[Any]:
            return _fail(f"not accepted (exit code {event.returncode})") if event.returncode else []

        return [process, RegisterEventHandler(OnProcessExit(target_action=process, on_exit=on_exit))]

    return LaunchDescription([*declared, OpaqueFunction(function=start)])
