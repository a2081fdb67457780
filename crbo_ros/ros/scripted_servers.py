"""Optimizer and monitor that answer by a script and note what a runner does: for `crbo check-runner` and the tests."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

import crbo_ros.msg as msg
import crbo_ros.srv as srv
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol.ports import RECEIPTS
from crbo_ros.protocol.records import OUTCOMES, new_uid
from crbo_ros.ros import qos

SILENCE = 0.8  # s, longer than any runner waits for a heartbeat
PATIENCE = 1.5  # s in which a runner that was told to stop must have stopped
WORDS = {code: word for word, code in OUTCOMES.items()}


class DroppedError(Exception):
    """An answer that never leaves."""


class ScriptedServers:
    """Each question gets the next answer of the schedule; an approval is used up when the runner says that it runs.

    `verdicts` and `receipts` of a schedule: for each proposal the answers to check_rollout and acknowledge_episode, in
    order. `proposes` (optional): those to propose_policy before it is handed out, wait or drop.
    """

    def __init__(self, schedule: dict[str, Any], namespace: str) -> None:
        self.executions: list[int] = []
        self.results: list[list[Any]] = []
        self.wrong: list[str] = []
        self.disturbed = False  # an execution that we did not disturb was broken off: the machine was too busy
        self.verdicts = [list(answers) for answers in schedule["verdicts"]]
        self.receipts = [list(answers) for answers in schedule["receipts"]]
        self.proposes = [list(answers) for answers in schedule.get("proposes", [[] for _ in self.verdicts])]
        self.signs: dict[str, int] = {}  # verdict_id -> how often the runner said that it runs
        self._told_to_stop: dict[str, float] = {}  # verdict_id -> when
        self._requests: dict[str, int] = {}
        self._told: dict[str, msg.EpisodeReturn] = {}
        self._approval = ""  # the verdict_id of the one that is valid now
        self._running: set[str] = set()
        self._undisturbed: set[int] = set()
        self._uid, self._silent_until, self._held_until = new_uid(), 0.0, 0.0
        self._context = Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node("scripted", namespace=namespace, context=self._context)
        self._node.create_service(srv.ProposePolicy, "propose_policy", self._propose)
        self._node.create_service(srv.CheckRollout, "check_rollout", self._check)
        self._node.create_service(srv.AcknowledgeEpisode, "acknowledge_episode", self._acknowledge)
        self._node.create_subscription(msg.RunnerStatus, "runner_status", self._on_status, qos.LATCHED)
        self._beats = self._node.create_publisher(msg.SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._spin, self._beat)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)

    def _spin(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(DroppedError):
                self._executor.spin_once(timeout_sec=0.1)

    def _beat(self) -> None:
        """On a thread of its own: heartbeats go on while an answer is late."""
        while not self._ended.wait(0.05):
            now = time.monotonic()
            if now > self._silent_until:
                self._beats.publish(msg.SafetyHeartbeat(monitor_uid=self._uid, armed=now > self._held_until))

    def _propose(self, request: Any, response: Any) -> Any:
        if request.request_id not in self._requests and self._requests:
            before = len(self._requests) - 1
            if before < len(self.receipts) and self.receipts[before]:
                self.wrong.append(f"takes a new request_id although proposal {before} has not ended")
                self.receipts[before] = []
        id = self._requests.setdefault(request.request_id, len(self._requests))
        if id < len(self.proposes) and self.proposes[id]:
            how = self.proposes[id].pop(0)
            if how == "drop":
                raise DroppedError
            response.status, response.reason, response.retry_after = response.WAIT, "not yet", 0.2
            return response
        if id == len(self.verdicts):
            response.status, response.reason = response.DONE, "the schedule is over"
        elif id > len(self.verdicts):
            self.wrong.append("asks for more after DONE")
        elif not self.receipts[id]:
            self.wrong.append(f"asks for proposal {id} once more after it was acknowledged")
        else:
            response.proposal = msg.Proposal(
                experiment_uid="recorded", problem="the problem", id=id, theta=[float(id)],
                theta_hash=theta_hash([float(id)]), lease=600.0,
            )  # fmt: skip
        return response

    def _check(self, request: Any, response: Any) -> Any:
        id, verdict = request.proposal.id, response.verdict
        verdict.experiment_uid, verdict.proposal_id, verdict.theta_hash = "recorded", id, request.proposal.theta_hash
        verdict.runner, verdict.nonce, verdict.verdict_id = request.runner, request.nonce, new_uid()
        verdict.monitor_uid, verdict.valid_for, verdict.status = self._uid, 5.0, verdict.APPROVED
        self._approval = ""
        if time.monotonic() < self._held_until:
            verdict.status = verdict.WAITING
            return response
        while not self._beats.get_subscription_count() or time.monotonic() < self._silent_until:
            time.sleep(0.01)
        time.sleep(0.15)  # it hears us now: whatever it does not run, it does not for want of a heartbeat
        how = self.verdicts[id][0] if self.verdicts[id] else "none"
        if how in ("completed", "stopped", "lost"):  # repeated until it runs: it may not have heard of us yet
            self._approval = verdict.verdict_id
            return response
        if how == "none" and id in self._undisturbed:
            self.disturbed = True
        elif how == "none":
            self.wrong.append(f"asks about proposal {id} once more")
        elif how == "foreign":
            verdict.nonce = "another"
        elif how == "old":
            verdict.valid_for = 0.2
            time.sleep(0.4)
        elif how == "closed":
            self._silent_until = time.monotonic() + SILENCE
            time.sleep(0.75 * SILENCE)
        else:
            verdict.status = {"waiting": verdict.WAITING, "vetoed": verdict.VETOED}[how]
        del self.verdicts[id][:1]
        return response

    def _on_status(self, status: msg.RunnerStatus) -> None:
        if status.state != status.RUNNING:
            return
        id, seen = status.proposal_id, self.signs.setdefault(status.verdict_id, 0)
        self.signs[status.verdict_id] = seen + 1
        told = self._told_to_stop.get(status.verdict_id)
        if told is not None and time.monotonic() - told > PATIENCE:
            self._told_to_stop[status.verdict_id] = math.inf
            self.wrong.append(f"proposal {id} still runs {PATIENCE:g} s after it had to stop")
        if status.verdict_id in self._running:
            return
        self._running.add(status.verdict_id)
        self.executions.append(status.proposal_id)
        if status.verdict_id != self._approval:
            self.wrong.append(f"runs proposal {status.proposal_id} without a valid approval")
            return
        how = self.verdicts[status.proposal_id].pop(0)
        if how in ("lost", "stopped"):
            self._told_to_stop[status.verdict_id] = time.monotonic()
        if how == "lost":  # and then it is started again
            self._silent_until, self._uid = time.monotonic() + SILENCE, new_uid()
        elif how == "completed":
            self._undisturbed.add(status.proposal_id)
        elif how == "stopped":
            self._held_until = time.monotonic() + SILENCE

    def _acknowledge(self, request: Any, response: Any) -> Any:
        episode = request.episode
        id, outcome = episode.proposal_id, WORDS.get(episode.outcome, "nothing")
        if episode.episode_uid not in self._told:
            if any(known.proposal_id == id for known in self._told.values()):
                self.wrong.append(f"hands the result of proposal {id} in under another episode_uid: it counts twice")
            self._told[episode.episode_uid] = episode
            self.results.append([id, outcome])
            if (episode.problem, list(episode.theta)) != ("the problem", [float(id)]):
                self.wrong.append(f"the result of proposal {id} is of another problem or policy")
            if outcome == "completed" and not episode.verdict_id:
                self.wrong.append(f"the result of proposal {id} does not say by which verdict it ran")
            if math.isfinite(episode.value) != (outcome == "completed"):
                self.wrong.append(f"the value of proposal {id}, which was {outcome}, is {episode.value}")
        if not 0 <= id < len(self.receipts):
            self.wrong.append(f"hands in a result of proposal {id}, which nobody was given")
            return response
        if not self.receipts[id]:
            self.wrong.append(f"hands the result of proposal {id} in once more")
            return response
        response.status = RECEIPTS[self.receipts[id].pop(0)]
        return response
