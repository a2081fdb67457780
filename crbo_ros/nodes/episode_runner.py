"""The episode runner: asks for a policy and a verdict, runs it on the plant, reports. The only node that moves things.

One worker thread does all that in order; the ROS callbacks only feed it (heartbeat) or end it (deactivate, signals).
What must survive a kill lies in the spool. docs/PROTOCOL.md says what happens when a partner is silent.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
from sensor_msgs.msg import JointState

from crbo_ros import msg, srv
from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import CrboError, InvalidInput, StoreError
from crbo_ros.nodes import base
from crbo_ros.nodes.partners import Partner
from crbo_ros.protocol.gate import HELD, Gate
from crbo_ros.protocol.records import APPROVED, FAILED, REFUSED, STOPPED, VETOED, Episode, Verdict, new_uid
from crbo_ros.protocol.spool import Spool
from crbo_ros.registry import make_task
from crbo_ros.ros import convert, parameters, qos
from crbo_ros.tasks.base import Outcome, Task

Status = msg.RunnerStatus
MAX_FAILURES = 10  # in a row, after which it gives up
QUIT = "the runner was told to end"


class EpisodeRunnerNode(base.ManagedNode):
    """See the module's docstring."""

    PARAMETERS = parameters.RUNNER

    def __init__(self) -> None:
        super().__init__("episode_runner")
        self.name = self.get_fully_qualified_name()
        self.gate = Gate(self.value("heartbeat_timeout"))
        self.task: Task | None = None
        self.spool: Spool | None = None
        self._worker: threading.Thread | None = None
        self._quit = threading.Event()
        self._status = Status(runner=self.name, proposal_id=-1, plant_safe=True)
        self._state_rate = 20.0  # Hz, during a rollout
        self._last_shown = 0.0
        self._failures = 0  # consecutive
        self._optimizer = Partner(self, "the optimizer", self._quit, self._set)
        self._monitor = Partner(self, "the safety monitor", self._quit, self._set)
        self._recent: list[msg.EpisodeReturn] = []  # the last results, for a monitor whose topic is slow
        self._unreported: list[Episode] = []  # as in the spool
        self._answered: list[tuple[str, str, str]] = []  # (episode_uid, end, reason) to be settled in the spool
        self._propose = self.create_client(srv.ProposePolicy, "propose_policy")
        self._check = self.create_client(srv.CheckRollout, "check_rollout")
        self._acknowledge = self.create_client(srv.AcknowledgeEpisode, "acknowledge_episode")
        self._returns = self.create_publisher(msg.EpisodeReturn, "episode_return", qos.HISTORY)
        self._status_publisher = self.create_publisher(Status, "runner_status", qos.LATCHED)
        self._joints = self.create_publisher(JointState, "joint_states", qos.SENSOR)
        self._trajectory = self.create_publisher(msg.EpisodeTrajectory, "episode_trajectory", qos.LATCHED)
        self.create_subscription(msg.SafetyHeartbeat, "safety_heartbeat", self._on_heartbeat, qos.HEARTBEAT)
        self.create_subscription(msg.OptimizerState, "optimizer_state", self._on_optimizer, qos.LATCHED)
        self.create_timer(0.5, self._publish_status)

    def _on_heartbeat(self, message: msg.SafetyHeartbeat) -> None:
        self.gate.heartbeat(message.monitor_uid, message.armed, message.reason)
        self._monitor.hear(message.monitor_uid)

    def _on_optimizer(self, message: msg.OptimizerState) -> None:
        self._optimizer.hear(message.experiment_uid)

    # -- lifecycle ----------------------------------------------------------------------------------

    def open(self) -> None:
        self.task = make_task(self.value("task"), self.value("plant") or None, **self.value("task_options"))
        self.spool = Spool(self.folder() / f"{self.name.strip('/').replace('/', '.')}.sqlite")
        for uid in self.spool.experiments():  # late joiners (a restarted monitor) get what this runner has seen
            for episode in self.spool.history(uid):
                self._returns.publish(convert.to_message(episode))
            self._recent = [convert.to_message(e) for e in self.spool.history(uid)[-3:] if e.counts]
        self._unreported, self._answered = self.spool.pending(), []

    def start(self) -> None:
        assert self.task is not None
        self.task.connect()
        self._quit.clear()
        self._worker = threading.Thread(target=self._work, name="episodes")
        self._worker.start()

    def halt(self) -> None:
        self._quit.set()
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join()
            self._worker = None
        if self.task is not None:
            self.task.stop()
        self._set(Status.IDLE, "not active")

    def close(self) -> None:
        if self.task is not None:
            task, self.task = self.task, None
            task.close()
        if self.spool is not None:
            spool, self.spool = self.spool, None
            spool.close()

    def diagnose(self) -> tuple[bytes, str, dict[str, Any]]:
        status = self._status
        level = {Status.ERROR: base.ERROR, Status.HELD: base.WARN}.get(status.state, base.OK)
        values = {
            "state": status.state, "episodes": status.episodes, "proposal": status.proposal_id,
            "unreported": status.unreported, "plant_safe": status.plant_safe,
        }  # fmt: skip
        return level, status.message, values

    # -- the loop -----------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._hand_in()
            while not self._quit.is_set():
                proposal = self._next_proposal()
                if proposal is not None:
                    self._handle(proposal)
                    self._hand_in()
        except CrboError as error:
            self._give_up(str(error))
        except Exception as error:  # whatever it was, the plant is made safe and the reason is shown
            self.get_logger().fatal(f"unexpected: {type(error).__name__}: {error}")
            self._give_up(f"unexpected error: {error}")
            raise
        finally:
            if self.task is not None:
                self.task.stop()

    def _give_up(self, reason: str) -> None:
        self.get_logger().fatal(f"gives up: {reason}")
        self._set(Status.ERROR, reason)
        self._quit.set()
        self.exit_code = 1
        self.done.set()

    def _next_proposal(self) -> msg.Proposal | None:
        """The proposal for the request in hand, or None if there is none to be had now."""
        assert self.spool is not None
        request = srv.ProposePolicy.Request(runner=self.name, request_id=self.spool.request_id())
        answer = self._optimizer.ask(self._propose, request, meanwhile=self._settle)
        if answer is None:
            return None
        if answer.proposal.experiment not in ("", self.value("experiment")):
            reason = (
                f"{self._propose.srv_name} is of experiment {answer.proposal.experiment!r}, this runner of "
                f"{self.value('experiment')!r}: use a namespace for each experiment; nothing moves"
            )
            self.get_logger().error(reason, throttle_duration_sec=5.0)
            self._set(Status.HELD, reason)
            self._quit.wait(0.5)
            return None
        if answer.status == answer.OK:
            return answer.proposal
        if answer.status == answer.REFUSED:
            self.get_logger().warning(f"request refused: {answer.reason}")
            self.spool.new_request()
        elif answer.status == answer.WAIT:
            self._set(Status.WAITING, answer.reason)
            self._quit.wait(answer.retry_after)
        else:
            self._on_done(answer)
        return None

    def _on_done(self, answer: Any) -> None:
        if self._status.state != Status.DONE:
            self.get_logger().info(f"done: {answer.reason}")
            if len(answer.proposal.theta) and self.task is not None:
                self.task.apply_best(np.array(answer.proposal.theta))
        self._set(Status.DONE, answer.reason)
        if self.value("exit_when_done"):
            self.done.set()
            self._quit.set()
        self._quit.wait(1.0)

    def _handle(self, proposal: msg.Proposal) -> None:
        """One proposal, to an end state or (when told to end) left for the next start."""
        assert self.task is not None
        assert self.spool is not None
        self._status.experiment_uid, self._status.proposal_id = proposal.experiment_uid, proposal.id
        theta = np.array(proposal.theta, dtype=np.float64)
        try:
            theta = self.task.space.check(theta)
            if theta_hash(theta) != proposal.theta_hash:
                raise InvalidInput("theta_hash: not the hash of theta")
        except InvalidInput as error:
            self._keep(proposal, theta, FAILED, str(error))
            return
        pause = 0.02
        while not self._quit.is_set():
            if obstacle := self.gate.obstacle():
                self._set(Status.HELD if obstacle.kind == HELD else Status.WAITING, obstacle.reason)
                self._quit.wait(0.02)
                continue
            request = srv.CheckRollout.Request(proposal=proposal, runner=self.name, recent=self._recent)
            answer = self._monitor.ask(self._check, request)
            arrived = time.monotonic()
            if answer is None:
                continue
            verdict = convert.from_message(answer.verdict, Verdict)
            if not self._is_mine(verdict, proposal):
                self.get_logger().error(f"a verdict for something else was discarded: {verdict.reason}")
            elif verdict.status == REFUSED:
                self._keep(proposal, theta, VETOED, verdict.reason, verdict)
                return
            elif verdict.status != APPROVED:
                self._set(Status.WAITING, verdict.reason)
            elif self._run(proposal, theta, verdict, arrived):
                return
            self._quit.wait(pause)
            pause = min(2 * pause, 0.5)

    def _is_mine(self, verdict: Verdict, proposal: msg.Proposal) -> bool:
        found = (verdict.experiment_uid, verdict.proposal_id, verdict.theta_hash, verdict.runner)
        return found == (proposal.experiment_uid, proposal.id, proposal.theta_hash, self.name)

    def _run(self, proposal: msg.Proposal, theta: np.ndarray, verdict: Verdict, arrived: float) -> bool:
        """Run the episode under this approval. False: it was not the proposal's fault that it ended; try again."""
        assert self.task is not None
        refusal = self.gate.refusal(
            verdict, experiment_uid=proposal.experiment_uid, proposal_id=proposal.id,
            theta_hash=theta_hash(theta), runner=self.name, arrived=arrived,
        )  # fmt: skip
        if refusal:
            self.get_logger().warning(f"proposal {proposal.id} does not run: {refusal}")
            return False
        stopped_by: list[str] = []

        def watch(seconds: float, observation: np.ndarray, action: np.ndarray) -> str | None:
            """Asked before every action: may this go on?"""
            if self._quit.is_set():
                stopped_by.append(QUIT)
                return QUIT
            if obstacle := self.gate.obstacle(verdict):
                stopped_by.append(obstacle.kind)
                return obstacle.reason
            self._show(seconds, observation)
            return None

        record = self.value("publish_trajectory")
        rng = np.random.default_rng([self.value("seed"), proposal.id, 0x0E91])  # a repeat after a crash gives the same
        self._status.plant_safe, self._status.verdict_id = False, verdict.verdict_id
        self._set(Status.RUNNING, f"proposal {proposal.id} ({proposal.kind})")
        try:
            outcome = self.task.rollout(theta, rng, record=record, watch=watch)
        finally:
            self.task.stop()
            self._status.plant_safe, self._status.verdict_id = True, ""
        if outcome.end == STOPPED and stopped_by != [HELD]:
            self.get_logger().warning(f"proposal {proposal.id} was stopped and will be run again: {outcome.reason}")
            return False
        self._status.episodes += 1
        self._keep(proposal, theta, outcome.end, outcome.reason, verdict, outcome)
        return True

    def _keep(
        self, proposal: msg.Proposal, theta: np.ndarray, end: str, reason: str, verdict: Verdict | None = None,
        outcome: Outcome | None = None,
    ) -> None:  # fmt: skip
        """Write the result to the spool, then publish it."""
        assert self.spool is not None
        statistics = outcome.statistics if outcome else {}
        episode = Episode(
            episode_uid=new_uid(),
            experiment_uid=proposal.experiment_uid,
            proposal_id=proposal.id,
            runner=self.name,
            theta=theta,
            outcome=end,
            value=outcome.value if outcome else math.nan,
            reason=reason,
            verdict_id=verdict.verdict_id if verdict else "",
            predicted_worst_case=verdict.worst_case if verdict else math.nan,
            steps=outcome.steps if outcome else 0,
            duration=outcome.duration if outcome else 0.0,
            deadline_misses=int(statistics.get("deadline_misses", 0)),
            max_lateness=1e-3 * float(statistics.get("lateness_max_ms", 0.0)),
            stamp=time.time(),
        )
        while True:
            try:
                self.spool.add(episode)
                self._unreported.append(episode)
                break
            except StoreError as error:  # the plant is safe; the result waits in memory for room on the disk
                self.get_logger().error(f"the result of proposal {proposal.id} cannot be kept: {error}")
                self._set(Status.ERROR, str(error))
                if self._quit.wait(1.0):
                    return
        message = convert.to_message(episode)
        self._returns.publish(message)
        self._recent = [*self._recent[-2:], message] if episode.counts else self._recent
        self._status.proposal_id = -1
        if outcome and outcome.trajectory and outcome.trajectory.columns:
            self._publish_trajectory(episode, outcome)
        self._failures = self._failures + 1 if end == FAILED else 0
        if end == FAILED:
            self.get_logger().error(f"proposal {proposal.id} failed: {reason}")
            if self._failures >= MAX_FAILURES:
                self._hand_in()
                raise InvalidInput(f"{self._failures} episodes in a row failed, the last one: {reason}")

    def _hand_in(self) -> None:
        """Give the optimizer what lies in the spool, oldest first, until it is acknowledged."""
        while self._unreported and not self._quit.is_set():
            self._status.unreported = len(self._unreported)
            episode = self._unreported[0]
            request = srv.AcknowledgeEpisode.Request(episode=convert.to_message(episode))
            answer = self._optimizer.ask(self._acknowledge, request, meanwhile=self._settle)
            if answer is None:
                continue
            if answer.status == answer.RETRY:
                self.get_logger().warning(f"the optimizer cannot take episode {episode.proposal_id}: {answer.reason}")
                self._quit.wait(1.0)
                continue
            if answer.status == answer.REFUSED:
                self.get_logger().error(f"episode {episode.proposal_id} refused, kept in the spool: {answer.reason}")
            end = "refused" if answer.status == answer.REFUSED else "done"
            self._answered.append((episode.episode_uid, end, answer.reason))
            del self._unreported[0]
        self._status.unreported = len(self._unreported)

    def _settle(self) -> None:
        """Mark in the spool what the optimizer has answered; done while waiting for its next answer.

        Killed before that, the runner hands those results in again after its restart, and they are duplicates.
        """
        assert self.spool is not None
        while self._answered:
            try:
                self.spool.settle(*self._answered[0])
            except StoreError as error:  # no harm is done: the next time, or a duplicate after a restart
                self.get_logger().error(str(error), throttle_duration_sec=5.0)
                return
            del self._answered[0]

    # -- topics ---------------------------------------------------------------------------

    def _set(self, state: int, message: str) -> None:
        """Change the status; published at once when it is another state, else by the timer."""
        changed = state != self._status.state
        self._status.state, self._status.message = state, message
        if changed:
            self._publish_status()

    def _publish_status(self) -> None:
        self._status.stamp = self.get_clock().now().to_msg()
        self._status_publisher.publish(self._status)

    def _show(self, seconds: float, observation: np.ndarray) -> None:
        """joint_states and runner_status at a modest rate."""
        now = time.monotonic()
        if now - self._last_shown < 1.0 / self._state_rate:
            return
        self._last_shown = now
        self._status.episode_time = float(seconds)
        self._publish_status()
        names = getattr(getattr(self.task, "plant", None), "joint_names", ())
        if names:
            joints = JointState(name=list(names), position=[float(q) for q in observation[: len(names)]])
            joints.header.stamp = self._status.stamp
            self._joints.publish(joints)

    def _publish_trajectory(self, episode: Episode, outcome: Outcome) -> None:
        assert outcome.trajectory is not None
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
