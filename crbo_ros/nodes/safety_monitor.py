"""The safety monitor: independent of the optimizer, keeps the contract, and can stop a rollout."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Any

from rclpy.parameter import Parameter
from rclpy.task import Future
from std_srvs.srv import Trigger

import crbo_ros.msg as msg
import crbo_ros.srv as srv
from crbo_ros import checks
from crbo_ros.core.contract import Terms
from crbo_ros.errors import CrboError, InvalidInput, StoreError
from crbo_ros.nodes import base
from crbo_ros.protocol import manifest
from crbo_ros.protocol.monitor import STRICTER, SafetyMonitor
from crbo_ros.protocol.ports import PLANTS, UNKNOWN
from crbo_ros.protocol.proofs import ADVICE, APPROVE, REARM, SET
from crbo_ros.protocol.records import WAITING, ContractState, Episode, Verdict
from crbo_ros.protocol.stops import CONFIRMED_WITHIN, Seen, Stops
from crbo_ros.ros import convert, parameters, qos
from crbo_ros.ros.operator import Door
from crbo_ros.ros.worker import defer

OPERATOR, SOMEBODY = "the operator, by set_parameters", "somebody, by a service"
MISSING = 1.0  # s for which returns may be on their way; then the optimizer is asked for them
AGAIN = 10.0  # s after which it is asked again
HEARTBEAT_RATE = 10.0  # Hz
PLANT_WORDS = {number: word for word, number in PLANTS.items()}
COVERAGE_WARNING = 0.9  # of the past bounds held; fewer are worth a warning,
ENOUGH = 20  # if there were so many


class SafetyMonitorNode(base.ManagedNode):
    """Translates between messages and protocol.monitor. Silent (no heartbeat) unless active: fails safe."""

    PARAMETERS = parameters.MONITOR

    def __init__(self) -> None:
        super().__init__("safety_monitor")
        self.monitor: SafetyMonitor | None = None
        self._sequence = 0
        self._beating = threading.Lock()
        self._warned, self._hint = False, ""
        self._told: ContractState | None = None  # the contract as it was published last
        self._key = os.environ.get("CRBO_KEY", "")  # the launcher gives it to monitor and runners
        self._last_answer: tuple[int, str, str] | None = None
        self._missing_since, self._asked = 0.0, 0.0  # on the monotonic clock; 0: nothing is missing
        # Fitting may take long; the operator's commands do not wait for it, and heartbeats wait for neither.
        self._fitting, urgent = self.make_worker("fitting"), self.make_worker("operator")
        defer(self.create_service(srv.CheckRollout, "check_rollout", self._check), self._fitting)
        defer(self.create_service(srv.ReviewProposal, "review_proposal", self._review), urgent)
        defer(self.create_service(srv.ReportViolation, "report_violation", self._report), self._fitting)
        defer(self.create_service(Trigger, "stop", self._stop), urgent, at_once=self._hold, urgent=True)
        defer(self.create_service(Trigger, "rearm", self._rearm), urgent, at_once=self._count_holds)
        for name in ("set_parameters", "set_parameters_atomically"):
            defer(self.own_service(name), urgent)
        self._proven = ""  # who wants the change of a parameter that is being made, with a proof
        handlers: dict[str, Any] = {REARM: self._do_rearm, APPROVE: self._do_approve, SET: self._do_set}
        self._door = Door(self, handlers, self._log_command)
        service = self.create_service(srv.OperatorCommand, "operator", self._door.answer)
        defer(service, urgent, at_once=self._count_holds)
        self._history = self.create_client(srv.GetEpisodes, "get_episodes")
        self._verdict = self.create_publisher(msg.SafetyVerdict, "safety_verdict", qos.HISTORY)
        self._contract = self.create_publisher(msg.SafetyContract, "safety_contract", qos.LATCHED)
        self._heartbeat = self.create_publisher(msg.SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
        self.create_subscription(msg.EpisodeReturn, "episode_return", self._on_return, qos.HISTORY)
        self._stops = Stops()
        self.create_subscription(msg.RunnerStatus, "runner_status", self._on_status, qos.HISTORY)
        self.steady_timer(1.0 / HEARTBEAT_RATE, self._beat)

    def open(self) -> None:
        problem = self.problem()
        monitor = SafetyMonitor(
            problem,
            self.folder() / "monitor.sqlite",
            j_min=self.value("j_min"),
            j_min_drop=self._drop(self.value("j_min_drop"), self.value("j_min")),
            risk=self.value("risk"),
            budget=parameters.budget(self.value("episodes"), problem.episodes),
            start_rollouts=self.value("start_rollouts"),
            lipschitz=self.value("lipschitz") or None,
            require_operator=self.value("require_operator"),
            key=self._key,
        )
        self.monitor = monitor
        if monitor.notes:
            self.set_parameters([Parameter(name, value=getattr(monitor, name)) for name in STRICTER])
        for note in monitor.notes:
            self.get_logger().warning(note)
        held = f", HELD: {monitor.stopped} (call rearm)" if monitor.stopped else ""
        self.get_logger().info(f"knows {monitor.n} returns{held}")
        self._say_threshold(monitor.j_min, monitor.j_min_drop)
        self._told = None
        self._publish_contract(monitor)

    def _drop(self, value: float, j_min: float) -> float:
        problem = self.problem()
        return parameters.threshold_drop(value, j_min, problem.j_min_drop, problem.hardware)

    def _say_threshold(self, j_min: float, drop: float) -> None:
        """A threshold that is off by mistake must not go unnoticed."""
        if effective := Terms(j_min=j_min, j_min_drop=drop).threshold_in_words:
            self.get_logger().info(f"threshold: {effective}; risk {self.value('risk'):g}")
        else:
            self.get_logger().warning("no threshold is effective (j_min, j_min_drop): everything is permitted")

    def close(self) -> None:
        if self.monitor is not None:
            monitor, self.monitor = self.monitor, None
            monitor.close()

    def apply(self, changes: dict[str, Any]) -> None:
        monitor = self.monitor
        if monitor is None:
            return
        if "episodes" in changes:
            monitor.budget = parameters.budget(changes["episodes"], self.problem().episodes)
        changes = {name: value for name, value in changes.items() if name in STRICTER}
        if "j_min_drop" in changes:
            changes["j_min_drop"] = self._drop(changes["j_min_drop"], changes.get("j_min", monitor.j_min))
        if changes:
            for name, value in changes.items():
                if STRICTER[name](value, getattr(monitor, name)) != value and self._key and not self._proven:
                    raise InvalidInput(f"{name}: {ADVICE} set EXPERIMENT {name}={value}")
            changed = monitor.configure(self._proven or OPERATOR, **changes)
            for name, value in changed.items():
                self.get_logger().warning(f"{name} is {value} from now on, also after a restart if that is stricter")
            try:
                manifest.thresholds(self.folder(), self._proven or OPERATOR, changed)
            except (OSError, CrboError) as error:
                self.get_logger().error(f"the change is effective and stored, but not in manifest.json: {error}")

    def diagnose(self) -> tuple[bytes, str, dict[str, Any]]:
        monitor = self.monitor
        if monitor is None or not self.active:
            return base.ERROR, "not active: nothing may move", {}
        values = {
            "armed": not monitor.stopped,
            "returns": monitor.n,
            "approved": monitor.approved,
            "vetoed": monitor.vetoed,
            "waiting": monitor.waiting,
            "threshold": monitor.threshold,
            "coverage": monitor.score.coverage,
        }
        told = self._told
        if told is not None:
            names = "executed violations novel_violations allowed pending account needed risk budget proven_id slack"
            values |= {name: getattr(told, name) for name in names.split()}
        if monitor.stopped:
            return base.ERROR, f"held: {monitor.stopped}", values
        if told is not None and told.state == "refused":
            return base.ERROR, f"the contract is refused: {told.reason}", values
        if told is not None and told.state == "empty":
            return base.WARN, told.reason, values
        if monitor.score.count >= ENOUGH and monitor.score.coverage < COVERAGE_WARNING:
            return base.WARN, f"only {monitor.score.coverage:.0%} of the past bounds held", values
        if self._hint:
            return base.WARN, self._hint, values
        return base.OK, "armed", values

    # -- services -----------------------------------------------------------------------------------

    def _check(self, request: Any, response: Any) -> Any:
        proposal = request.proposal
        monitor = self.monitor
        if monitor is None or not self.active:
            verdict = self._wait(request, "the safety monitor is not active")
        else:
            try:
                monitor.database.meet(convert.from_heads(request.heads), f"runner {request.runner!r}")
                for episode in request.recent:
                    self._record(episode)
                verdict = monitor.check(
                    experiment_uid=proposal.experiment_uid,
                    proposal_id=proposal.id,
                    theta=list(proposal.theta),
                    hash=proposal.theta_hash,
                    runner=request.runner,
                    problem=proposal.problem,
                    returns=proposal.returns,
                    nonce=request.nonce,
                )
            except StoreError as error:  # an approval that cannot be written down is none
                self.get_logger().error(str(error))
                verdict = self._wait(request, str(error), monitor.uid)
            self._look_for_missing(monitor, proposal.returns if verdict.status == WAITING else 0)
        response.verdict = convert.to_message(verdict)
        response.heads = convert.to_heads(monitor.database.heads) if monitor is not None else []
        # WAITING is repeated at every question; once is enough for those who listen (and keep a history).
        answer = (verdict.proposal_id, verdict.status, verdict.reason)
        if verdict.status != WAITING or answer != self._last_answer:
            self._verdict.publish(response.verdict)
            if verdict.status == WAITING:
                self.get_logger().info(f"proposal {proposal.id}: {verdict.reason}")
        self._last_answer = answer
        if verdict.status == "vetoed":
            self.get_logger().warning(f"veto of proposal {proposal.id}: {verdict.reason}")
        hint = monitor.hint() if monitor is not None else ""
        if hint and not self._hint:
            self.get_logger().warning(hint)
        if monitor is not None and self.active and verdict.status != WAITING:
            self._fitting.submit(lambda: self._publish_contract(monitor))  # after the answer has gone
        self._hint = hint  # kept for the diagnostics, which must not wait for the monitor's fitting
        return response

    def _wait(self, request: Any, reason: str, monitor_uid: str = "") -> Verdict:
        """The answer of a monitor that cannot judge now."""
        proposal = request.proposal
        return Verdict(
            WAITING, proposal.experiment_uid, proposal.id, proposal.theta_hash, request.runner, reason, monitor_uid,
            nonce=request.nonce,
        ).signed(self._key)  # fmt: skip

    def _review(self, request: Any, response: Any) -> Any:
        monitor = self.monitor
        if monitor is None:
            response.reason = "the safety monitor is not configured"
            return response
        if request.approve and self._key:
            response.reason = f"approve: {ADVICE} approve EXPERIMENT proposal_id={request.proposal_id}"
            return response
        try:
            response.accepted, response.reason = monitor.review(
                request.proposal_id, request.theta_hash, request.approve, request.comment
            )
            if response.accepted:
                word = "approve" if request.approve else "reject"
                told = f"proposal {request.proposal_id}: {request.comment}"[:1024]
                monitor.store.log_command(word, told, SOMEBODY, time.time())
        except StoreError as error:  # a decision that cannot be written down was not made
            response.reason = str(error)
        return convert.fit(response)

    # -- the operator's commands that loosen something ------------------------------------------------

    def _log_command(self, command: str, arguments: str, who: str) -> None:
        if self.monitor is None:
            raise InvalidInput("the safety monitor is not configured")
        self.monitor.store.log_command(command, arguments, who, time.time())

    def _do_rearm(self, arguments: dict[str, Any], who: str, holds: Any) -> tuple[bool, str]:
        response = self._arm(Trigger.Response(), holds)
        return response.success, response.message

    def _do_approve(self, arguments: dict[str, Any], who: str, holds: Any) -> tuple[bool, str]:
        assert self.monitor is not None
        comment = str(arguments.get("comment", "")) or f"by {who}"
        id = int(checks.number(arguments.get("proposal_id"), "proposal_id", 0, 2**32, whole=True))
        return self.monitor.review(id, str(arguments.get("theta_hash", "")), True, comment)

    def _do_set(self, arguments: dict[str, Any], who: str, holds: Any) -> tuple[bool, str]:
        for name in arguments:
            if name not in STRICTER:
                raise InvalidInput(f"{name}: none of {', '.join(STRICTER)}")
            if not isinstance(arguments[name], bool) and isinstance(arguments[name], int):
                arguments[name] = float(arguments[name])
        self._proven = who
        try:
            results = self.set_parameters([Parameter(name, value=value) for name, value in arguments.items()])
        finally:
            self._proven = ""
        wrong = [result.reason for result in results if not result.successful]
        return not wrong, "; ".join(wrong)

    def _report(self, request: Any, response: Any) -> Any:
        monitor = self.monitor
        if monitor is None:
            response.reason = "the safety monitor is not configured"
            return response
        try:
            response.accepted, response.reason = monitor.report_violation(request.proposal_id, request.comment)
            if response.accepted:
                told = f"of proposal {request.proposal_id}: {request.comment}"[:1024]
                monitor.store.log_command("reports a violation", told, SOMEBODY, time.time())
        except StoreError as error:  # what cannot be written down does not count
            response.reason = str(error)
        self.get_logger().warning(f"violation reported ({request.comment}): {response.reason}")
        self._publish_contract(monitor)
        return response

    def _publish_contract(self, monitor: SafetyMonitor) -> None:
        """The contract at a glance, when something changed."""
        summary = monitor.summary()
        if self._told is None or replace(summary, stamp=self._told.stamp) != self._told:
            self._told = summary
            self._contract.publish(convert.to_message(summary))

    def _hold(self, request: Any) -> SafetyMonitor | None:
        """Stop, as soon as the call arrives; _stop writes it down."""
        monitor = self.monitor
        if monitor is not None:
            monitor.hold("stop was called")
            self._beat()  # does not wait for the timer
        return monitor

    def _stop(self, request: Any, response: Any, monitor: SafetyMonitor | None = None) -> Any:
        if monitor is None:
            response.success, response.message = True, "not configured: nothing moves anyway"
            return response
        response.success, response.message = True, "held until rearm"
        deadline = time.monotonic() + CONFIRMED_WITHIN
        try:
            if not monitor.store.flag("stopped"):  # once, however often it is called
                monitor.store.log_command("stop", "", SOMEBODY, time.time())
            monitor.keep_hold()
        except StoreError as error:
            response.message += f", but not across a restart: {error}"
        while self._stops.unconfirmed(time.monotonic(), monitor.holds) and time.monotonic() < deadline:
            self._stops.wait(0.02)
        now = time.monotonic()
        say = self.get_logger().fatal if self._stops.unconfirmed(now, monitor.holds) else self.get_logger().warning
        response.message += f"; {self._stops.answer(now, monitor.holds)}"
        say(f"stop: everything is {response.message}")
        return response

    def _on_status(self, message: msg.RunnerStatus) -> None:
        idle = message.state == msg.RunnerStatus.IDLE
        plant = PLANT_WORDS.get(message.plant, UNKNOWN)
        self._stops.hear(message.runner, Seen(time.monotonic(), message.holds, plant, message.plant_reason, idle))

    def _count_holds(self, request: Any) -> int:
        """How often it had been told to hold when the call arrived: a stop after that wins."""
        return 0 if self.monitor is None else self.monitor.holds

    def _rearm(self, request: Any, response: Any, holds: int = 0) -> Any:
        if self._key:
            response.success, response.message = False, f"rearm: {ADVICE} rearm EXPERIMENT"
            return response
        try:
            self._log_command(REARM, "", SOMEBODY)
        except CrboError as error:
            response.success, response.message = False, str(error)
            return response
        return self._arm(response, holds)

    def _arm(self, response: Any, holds: int) -> Any:
        monitor = self.monitor
        if monitor is None or not self.active:
            response.success, response.message = False, "the safety monitor is not active"
            return response
        try:
            armed = monitor.rearm(holds)
        except StoreError as error:
            response.success, response.message = False, str(error)
            return response
        if not armed:
            response.success, response.message = False, "stop was called meanwhile"
            return response
        self._beat()
        self.get_logger().info("armed")
        response.success, response.message = True, "armed"
        return response

    # -- topics -------------------------------------------------------------------------------------

    def _on_return(self, message: msg.EpisodeReturn) -> None:
        monitor = self.monitor
        if monitor is None or message.experiment_uid != (monitor.experiment_uid or message.experiment_uid):
            return
        self._fitting.offer(lambda: self._learn(message))

    def _learn(self, message: msg.EpisodeReturn) -> None:
        """Record a return and, if nobody waits, fit the model to it: the next question comes soon."""
        recorded = self._record(message)
        monitor = self.monitor
        if recorded and monitor is not None and self.active and self._fitting.idle:
            monitor.fit()
            self._publish_contract(monitor)

    def _record(self, message: msg.EpisodeReturn, verified: bool = True) -> bool:
        monitor = self.monitor
        if monitor is None or monitor.knows(message.episode_uid):
            return False
        try:
            if not monitor.add_return(convert.from_message(message, Episode), verified=verified):
                return False
        except (InvalidInput, StoreError) as error:
            self.complain("return", f"return of proposal {message.proposal_id} not recorded: {error}")
            return False
        low = monitor.score.count >= ENOUGH and monitor.score.coverage < COVERAGE_WARNING
        if low and not self._warned:
            self.get_logger().warning(f"only {monitor.score.coverage:.0%} of the past worst-case bounds held")
        self._warned = low
        return True

    # -- returns that the optimizer has and this monitor has not -----------------------------------------

    def _look_for_missing(self, monitor: SafetyMonitor, returns: int) -> None:
        """Ask the optimizer for them, unless they are just slow. Does not wait for the answer."""
        now = time.monotonic()
        if not monitor.lacks(returns):
            self._missing_since = 0.0
            return
        self._missing_since = self._missing_since or now
        if now - self._missing_since > MISSING and now - self._asked > AGAIN and self._history.service_is_ready():
            self.get_logger().warning(f"lacks {monitor.lacks(returns)} returns: asks the optimizer's store for them")
            self._ask_for_history(monitor, 0)

    def _ask_for_history(self, monitor: SafetyMonitor, start: int) -> None:
        self._asked = time.monotonic()
        request = srv.GetEpisodes.Request(experiment_uid=monitor.experiment_uid, start=start)
        future = self._history.call_async(request)
        future.add_done_callback(lambda done: self._fitting.submit(lambda: self._record_history(done, start)))

    def _record_history(self, done: Future, start: int) -> None:
        answer, monitor = done.result(), self.monitor
        if answer is None or monitor is None:
            return
        before = monitor.n
        for message in answer.episodes:
            self._record(message, verified=False)
        self.get_logger().info(f"{monitor.n - before} returns from the optimizer's store, recorded as unverified")
        if answer.episodes and start + len(answer.episodes) < answer.total:
            self._ask_for_history(monitor, start + len(answer.episodes))

    def _beat(self) -> None:
        monitor = self.monitor
        if monitor is None or not self.active:
            return
        with self._beating:  # two threads beat: an "armed" read before a stop must not be published after it
            self._sequence += 1
            holds, stopped = monitor.holds, monitor.stopped
            self._heartbeat.publish(
                msg.SafetyHeartbeat(
                    stamp=self.get_clock().now().to_msg(),
                    monitor_uid=monitor.uid,
                    experiment_uid=monitor.experiment_uid,
                    sequence=self._sequence,
                    armed=not stopped,
                    holds=holds,
                    reason=stopped,
                    coverage=monitor.score.coverage,
                    approved=monitor.approved,
                    vetoed=monitor.vetoed,
                )
            )


def main() -> int:
    return base.run_node(SafetyMonitorNode)
