"""The episode runner: the only node that moves things. It translates; the loop (protocol/runner.py) decides.

Three threads: the executor's, which feeds the gate and posts answers; the loop's; and the rig's, which alone touches
the plant and asks the gate before every action. What must survive a kill lies in the spool.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

import crbo_ros.msg as msg
import crbo_ros.srv as srv
from crbo_ros.errors import InvalidInput, PlantFailed, explain
from crbo_ros.nodes import CRASHED, KEY, PARENT, base
from crbo_ros.nodes.rig import TaskRig, stop_task
from crbo_ros.protocol.gate import LOST, Gate
from crbo_ros.protocol.manifest import robot_of
from crbo_ros.protocol.ports import PLANTS, SAFE, UNKNOWN, Command, Safe, State
from crbo_ros.protocol.ports import Status as LoopStatus
from crbo_ros.protocol.proofs import ADVICE
from crbo_ros.protocol.records import ContractState, Episode
from crbo_ros.protocol.runner import EpisodeLoop
from crbo_ros.protocol.spool import Spool
from crbo_ros.registry import make_task
from crbo_ros.ros import convert, parameters, qos
from crbo_ros.ros.operator import Door
from crbo_ros.ros.runner_link import Driver, RunnerLink, say
from crbo_ros.ros.worker import defer
from crbo_ros.tasks.base import Outcome, Task

Status = msg.RunnerStatus
STATES = {
    State.READY: Status.PREPARING, State.JUDGE: Status.PREPARING, State.BEGIN: Status.PREPARING,
    State.RUN: Status.RUNNING, State.MAKE_SAFE: Status.RUNNING, State.HELD: Status.HELD, State.FAULT: Status.ERROR,
    State.DONE: Status.DONE, State.ENDED: Status.IDLE,
}  # fmt: skip
STATE_RATE = 20.0  # Hz of joint_states and runner_status during a rollout
FAREWELL = 8.0  # s for the loop to end; then the plant is stopped all the same


class EpisodeRunnerNode(base.ManagedNode):
    """See the module's docstring."""

    PARAMETERS = parameters.RUNNER

    def __init__(self) -> None:
        super().__init__("episode_runner")
        self.name = self.get_fully_qualified_name()
        self.gate = Gate(self.value("heartbeat_timeout"))
        self.task: Task | None = None
        self.spool: Spool | None = None
        self._rig: TaskRig | None = None
        self._driver = Driver(self._on_status, self._on_crash)
        self._status = Status(runner=self.name, proposal_id=-1, plant=Status.PLANT_SAFE, plant_reason="not connected")
        self._last_shown = 0.0
        self._outcome: Outcome | None = None
        self._told_to_quit = False
        self._threshold = "not told by the safety monitor yet"
        self._link = RunnerLink(
            self, self.name, self.gate, self._driver, publish_status=self._publish_status, on_report=self._show_episode,
            memory=lambda: self.spool.database if self.spool is not None else None,
        )  # fmt: skip
        self._status_publisher = self.create_publisher(Status, "runner_status", qos.LATCHED)
        self._joints = self.create_publisher(JointState, "joint_states", qos.SENSOR)
        self._trajectory = self.create_publisher(msg.EpisodeTrajectory, "episode_trajectory", qos.LATCHED)
        self.create_subscription(msg.SafetyContract, "safety_contract", self._on_contract, qos.LATCHED)
        self.create_service(Trigger, "~/clear", self._on_clear)
        self.create_service(Trigger, "~/give_back", self._on_give_back)
        handlers: dict[str, Any] = {command.value: self._do(command) for command in (Command.CLEAR, Command.GIVE_BACK)}
        self._door = Door(self, handlers, self._log_command)
        defer(self.create_service(srv.OperatorCommand, "~/operator", self._door.answer), self.make_worker("operator"))
        self.steady_timer(0.5, self._publish_status)

    # -- lifecycle ----------------------------------------------------------------------------------

    def open(self) -> None:
        self.task = make_task(self.value("task"), self.value("plant") or None, **self.value("task_options"))
        self.spool = Spool(self.folder() / f"{self.name.strip('/').replace('/', '.')}.sqlite")

    def start(self) -> None:
        assert self.task is not None
        assert self.spool is not None
        self.task.connect()
        self._status.robot = robot_of(self.task)
        self._keep_former()
        self._rig = TaskRig(
            self.task, self.gate, self.value("seed"), self._driver.wake, safe=stop_task(self.task),
            record=lambda: self._trajectory.get_subscription_count() > 0, show=self._show,
            on_outcome=self._keep_outcome, on_crash=lambda text: self.get_logger().error(text),
        )  # fmt: skip
        loop = EpisodeLoop(
            self.name, self.spool, self._link, self._rig, self.gate, experiment=self.value("experiment"),
            problem=self.problem().key, space=self.task.space, key=os.environ.get(KEY, ""),
            exit_when_done=bool(os.environ.get(PARENT)), say=self._say, consent=self._consent(),
        )  # fmt: skip
        if loop.state is not State.HAND_IN:
            self.get_logger().warning(loop.status.message)
        for uid in self.spool.experiments():  # late joiners (a restarted monitor) get what this runner has seen
            history = self.spool.history(uid)
            for episode in history:
                self._link.publish(episode)
            loop.outbox.recent = [episode for episode in history if episode.executed][-3:]
        self._told_to_quit = False
        self._driver.start(loop)
        loop.consent = self._consent()  # the threshold may have been told while the loop was made

    def _consent(self) -> str:
        """What a person must agree to before the first movement: all that is effective now. Empty: nothing."""
        if self.task is None or self.value("yes_move") or not self.problem().hardware:
            return ""
        return (
            f"task {self.task.name} moves the real plant {self.task.plant_name}. Threshold: {self._threshold}. "
            f"Limits: {self.task.limits_in_words() or 'none that it knows of'}. Options: {self.value('task_options')}"
        )

    def _on_contract(self, message: msg.SafetyContract) -> None:
        """The threshold is the monitor's; it may come, or change, while the operator is asked."""
        told = convert.from_message(message, ContractState).threshold_in_words
        loop = self._driver.loop
        if told == self._threshold:
            return
        self._threshold = told
        if loop is not None and loop.consent:
            loop.consent = self._consent()
            self._driver.wake()

    def _keep_former(self) -> None:
        """Write down, once, what a plant held before this experiment changed it: crbo rollback puts it back."""
        former, file = getattr(getattr(self.task, "plant", None), "former", None), self.folder() / "former.json"
        if former and not file.exists():
            part = file.with_suffix(".part")
            part.write_text(json.dumps(former, indent=1))
            part.replace(file)

    def quit(self) -> None:
        """No rollout begins any more, and the plant stops; does not wait."""
        self._told_to_quit = True
        if self._driver.loop is not None:
            self._driver.loop.told(Command.QUIT)
            self._driver.wake()

    def halt(self) -> None:
        self.quit()
        ended = self._driver.join(FAREWELL)
        if self._rig is not None and not self._rig.close(2.0 if ended else 0.0):
            self.get_logger().fatal("the plant does not come to an end; stopping it from outside")
        safe = Safe(True, "not connected") if self.task is None else stop_task(self.task)
        self._status.state, self._status.message = Status.IDLE, "not active"
        self._status.plant, self._status.plant_reason = PLANTS[SAFE if safe.confirmed else UNKNOWN], safe.reason
        self._publish_status()
        if not safe.confirmed:
            raise PlantFailed(f"the plant is not known to be safe: {safe.reason}")

    def close(self) -> None:
        task, self.task = self.task, None
        spool, self.spool = self.spool, None
        try:
            if task is not None:
                task.close()
        finally:
            if spool is not None:
                spool.close()

    def diagnose(self) -> tuple[bytes, str, dict[str, Any]]:
        status = self._status
        level = {Status.ERROR: base.ERROR, Status.HELD: base.WARN}.get(status.state, base.OK)
        names = ("state", "episodes", "proposal_id", "interrupted", "unreported", "plant", "plant_reason")
        return level, status.message, {name: getattr(status, name) for name in names}

    # -- the loop speaks ----------------------------------------------------------------------------

    def _say(self, level: str, text: str) -> None:
        say(self.get_logger(), level, text)

    def _on_status(self, status: LoopStatus) -> None:
        """From the loop's thread, whenever something changed."""
        message = self._status
        state = Status.HELD if status.held else STATES.get(status.state, Status.WAITING)
        changed = state != message.state
        message.state, message.message, message.proposal_id = state, status.message, status.proposal_id
        message.experiment_uid, message.verdict_id = status.experiment_uid, status.verdict_id
        message.episodes, message.interrupted = status.episodes, status.interrupted
        message.unreported = status.unreported
        plant = (message.plant, message.holds)
        message.plant, message.plant_reason, message.holds = PLANTS[status.plant], status.plant_reason, status.holds
        if changed or plant != (message.plant, message.holds):
            self._publish_status()
        if status.state is State.ENDED and not self._told_to_quit:
            self.done.set()

    def _on_crash(self, error: BaseException) -> None:
        self.get_logger().fatal(explain(error))
        self._status.state, self._status.message = Status.ERROR, f"unexpected error: {error}"
        if self._rig is not None:
            self._rig.stop(LOST, "the runner failed")
        self.exit_code = CRASHED
        self.done.set()

    def _on_clear(self, request: Any, response: Any) -> Any:
        return self._command(Command.CLEAR, response)

    def _on_give_back(self, request: Any, response: Any) -> Any:
        return self._command(Command.GIVE_BACK, response)

    def _log_command(self, command: str, arguments: str, who: str) -> None:
        if self.spool is None:
            raise InvalidInput("the runner is not configured")
        self.spool.log_command(command, arguments, who, time.time())

    def _do(self, command: Command) -> Any:
        def handler(arguments: dict[str, Any], who: str, at_once: Any) -> tuple[bool, str]:
            response = self._obey(command, Trigger.Response())
            return response.success, response.message

        return handler

    def _command(self, command: Command, response: Any) -> Any:
        if self._door.key:
            response.message = f"{command.value}: {ADVICE} {command.value} EXPERIMENT"
            return response
        return self._obey(command, response)

    def _obey(self, command: Command, response: Any) -> Any:
        loop = self._driver.loop
        if loop is None or loop.state not in (State.HELD, State.FAULT):
            response.message = "nothing is held here"
            return response
        self.get_logger().warning(f"{command.value} by the operator: {loop.status.message}")
        loop.told(command)
        self._driver.wake()
        response.success, response.message = True, command.value
        return response

    # -- topics -------------------------------------------------------------------------------------

    def _publish_status(self) -> None:
        self._status.stamp = self.get_clock().now().to_msg()
        self._status_publisher.publish(convert.fit(self._status))

    def _show(self, seconds: float, observation: np.ndarray) -> None:
        """joint_states and runner_status at a modest rate, from the rig's thread."""
        now = time.monotonic()
        if now - self._last_shown < 1.0 / STATE_RATE:
            return
        self._last_shown = now
        self._status.episode_time = float(seconds)
        self._publish_status()
        names = getattr(getattr(self.task, "plant", None), "joint_names", ())
        if names:
            joints = JointState(name=list(names), position=[float(q) for q in observation[: len(names)]])
            joints.header.stamp = self._status.stamp
            self._joints.publish(joints)

    def _keep_outcome(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _show_episode(self, episode: Episode) -> None:
        """The trajectory of a result that has just been published."""
        outcome, self._outcome = self._outcome, None
        if outcome is None or outcome.trajectory is None or not outcome.trajectory.columns:
            return
        columns = outcome.trajectory.columns
        self._trajectory.publish(
            msg.EpisodeTrajectory(
                experiment_uid=episode.experiment_uid,
                proposal_id=episode.proposal_id,
                episode_uid=episode.episode_uid,
                names=list(columns),
                time=outcome.trajectory.time.tolist(),
                values=np.column_stack(list(columns.values())).ravel().tolist(),
            )
        )


def main() -> int:
    return base.run_node(EpisodeRunnerNode)
