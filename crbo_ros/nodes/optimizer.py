"""The optimizer: owns the data set, answers propose_policy, records how proposals ended. Theta in, return out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from std_srvs.srv import Trigger

import crbo_ros.msg as msg
import crbo_ros.srv as srv
from crbo_ros.core.guide import GuidePath
from crbo_ros.core.problem import Problem
from crbo_ros.core.settings import TERMS
from crbo_ros.errors import CrboError, InvalidInput, StoreError
from crbo_ros.nodes import base
from crbo_ros.protocol import best_file, manifest
from crbo_ros.protocol.earlier import earlier_episodes
from crbo_ros.protocol.episode_lines import EpisodeLines
from crbo_ros.protocol.optimizer import ERROR, EXHAUSTED, FINISHED, PAUSED, RUNNING, OptimizerServer
from crbo_ros.protocol.ports import ACCEPTED, ANSWERS, OK, RECEIPTS, REFUSED, RETRY, WAIT, Answer
from crbo_ros.protocol.records import VETOED, Episode, Verdict
from crbo_ros.registry import make_method
from crbo_ros.ros import convert, parameters, qos
from crbo_ros.ros.worker import defer
from crbo_ros.tasks.guide import make_guide

SOMEBODY, BY_SERVICE = "somebody, by set_parameters of the optimizer", "somebody, by a service of the optimizer"
ROBOTS = 64  # that are written down: a flood of names is none
STATES = {name: getattr(msg.OptimizerState, name.upper()) for name in (RUNNING, PAUSED, FINISHED, EXHAUSTED, ERROR)}
METRICS = (
    "completed pending vetoed failed expired last_return average_return start_return gamma gamma_effective r0 "
    "lengthscale signal_variance noise_variance lipschitz lipschitz_paper coverage propose_seconds account "
    "steered repeated"
).split()


class OptimizerNode(base.ManagedNode):
    """Translates between messages and protocol.optimizer.OptimizerServer."""

    PARAMETERS = parameters.OPTIMIZER

    def __init__(self) -> None:
        super().__init__("optimizer")
        self.experiment: OptimizerServer | None = None
        self._changed = threading.Event()
        self._newest: msg.OptimizerState | None = None  # state while an experiment is open
        self._telling = threading.Lock()  # what is told last is the newest
        # One thread computes, reads and writes, in the order in which things arrive; the executor only hands them over.
        self._worker = self.make_worker("fitting")
        self._ticking = self._preparing = False  # whether such a job is in the queue
        self._lines = EpisodeLines()
        self._robots: set[tuple[str, str]] = set()  # (runner, what it moves) that the manifest knows of
        defer(self.create_service(srv.ProposePolicy, "propose_policy", self._propose), self._worker)
        defer(self.create_service(srv.AcknowledgeEpisode, "acknowledge_episode", self._acknowledge), self._worker)
        defer(self.create_service(srv.GetBestPolicy, "get_best_policy", self._get_best), self._worker)
        defer(self.create_service(srv.GetEpisodes, "get_episodes", self._get_episodes), self._worker)
        for name in ("pause", "resume", "finish"):
            defer(self.create_service(Trigger, name, self._trigger(name)), self._worker, urgent=True)
        for name in ("set_parameters", "set_parameters_atomically"):
            defer(self.own_service(name), self._worker, urgent=True)
        self._state = self.create_publisher(msg.OptimizerState, "optimizer_state", qos.LATCHED)
        self._proposal = self.create_publisher(msg.Proposal, "proposal", qos.HISTORY)
        self.create_subscription(msg.EpisodeReturn, "episode_return", self._on_return, qos.HISTORY)
        self.create_subscription(msg.SafetyVerdict, "safety_verdict", self._on_verdict, qos.HISTORY)
        self.create_subscription(msg.SafetyContract, "safety_contract", self._on_contract, qos.LATCHED)
        self.create_subscription(msg.RunnerStatus, "runner_status", self._on_status, qos.LATCHED)
        self.steady_timer(0.2, self._tick)
        self.steady_timer(1.0, self._repeat_state)

    # -- lifecycle ----------------------------------------------------------------------------------

    def open(self) -> None:
        problem = self.problem()
        method, seed = self.value("method"), self.value("seed")
        settings = self.value("settings")
        budget = parameters.budget(self.value("episodes"), problem.episodes)
        terms = self._terms(problem, {name: self.value(name) for name in TERMS if name != "budget"}) | {
            "budget": budget
        }
        if method == "crbo":
            settings.setdefault("gamma", self.value("gamma") or problem.gamma)
            for name, value in terms.items():
                if math.isfinite(value):
                    settings.setdefault(name, value)
            if self.value("lipschitz"):
                settings.setdefault("lipschitz", self.value("lipschitz"))

        paths: dict[str, GuidePath] = {}  # once a process: it takes a while

        def guide() -> GuidePath:
            name = settings["guide"]
            if name not in paths:
                self.get_logger().info(f"guide {name!r}: the simulator looks for a path; this may take a minute")
                paths[name] = make_guide(problem, name, self.value("task_options"))
                self.get_logger().info(f"guide {name!r}: {paths[name].in_words}")
            return paths[name]

        def make(stored: dict[str, Any]) -> Any:
            own = {"guide": guide} if stored.get("guide") else {}
            try:
                return make_method(method, problem.space, problem.theta_0, seed=seed, **{**stored, **own})
            except TypeError as error:
                raise InvalidInput(f"parameter settings: {error}") from None

        self.experiment = OptimizerServer.open(
            self.folder() / "experiment.sqlite",
            problem=problem,
            name=self.value("experiment"),
            method=method,
            make=make,
            seed=seed,
            settings=settings,
            budget=budget,
        )
        if settings.get("guide") and not self.experiment.method.trials:
            guide()  # before anything moves
        self._keep_record(problem, terms | {"gamma": settings.get("gamma", problem.gamma)})
        if self.value("attach"):
            self._attach(self.experiment, problem)
        if self.experiment.state == FINISHED:
            self.experiment.set_budget(budget)  # a larger budget lets it go on
        known = self.experiment.method.report()
        if gone := {n: v for n, v in terms.items() if math.isinf(v) and math.isfinite(known.get(n, v))}:
            self.experiment.configure(**gone)  # a threshold that shall not be there any more
        n = self.experiment.method.n
        self.get_logger().info(
            f"experiment {self.experiment.name!r}: {method}, {problem.space.dim} parameters, "
            + (f"carries on after {n} episodes" if n else "new")
            + f", in {self.folder()}"
        )
        self._changed.set()

    def _attach(self, experiment: OptimizerServer, problem: Problem) -> None:
        """Earlier episodes, once: as data, or those of another plant as a second source."""
        if experiment.attached or experiment.informed:
            return
        if experiment.method.trials:
            self.get_logger().warning("attach: this experiment has begun without earlier episodes; they are left out")
            return
        source = self.value("attach")
        episodes, other = earlier_episodes(source, problem, self.value("experiments_dir"))
        if other:
            count = experiment.inform(episodes)
            self.get_logger().info(f"{count} returns of another plant inform the mean alone, from {source} ({other})")
        else:
            count = experiment.attach(episodes, source)
            self.get_logger().info(f"begins with {count} earlier episodes from {source}")

    def _terms(self, problem: Problem, values: dict[str, Any]) -> dict[str, Any]:
        """The contract's parameters as the method takes them."""
        if "j_min_drop" in values:
            own, j_min = problem.j_min_drop, values.get("j_min", self.value("j_min"))
            values["j_min_drop"] = parameters.threshold_drop(values["j_min_drop"], j_min, own, problem.hardware)
        return values

    def _keep_record(self, problem: Problem, terms: dict[str, Any]) -> None:
        """The manifest beside the store; whoever started us may have begun it, and knows more."""
        experiment = self.experiment
        assert experiment is not None

        def write(folder: Path) -> None:
            if not (folder / manifest.FILE).is_file():
                manifest.begin(folder, problem.task, problem.plant, self.value("task_options"))
            about = experiment.identity
            manifest.opened(folder, uid=about.uid, method=about.method, seed=about.seed, settings=about.settings)
            manifest.thresholds(folder, f"{manifest.who()}, who started it", terms)

        self._note(write)

    def close(self) -> None:
        if self.experiment is not None:
            experiment, self.experiment = self.experiment, None
            self._publish_state(experiment)
            self._newest = None
            self._write_best(experiment)
            experiment.close()

    def _write_best(self, experiment: OptimizerServer) -> None:
        """best.json beside the store: the recommended policy, for whoever wants to use it."""
        best = experiment.best()
        if best is None:
            return
        fields = {"experiment": experiment.name, "task": experiment.task, "id": best.id, "mean": best.mean}
        fields |= {"sigma": best.sigma, "observed": best.observed, "theta": best.theta.tolist()}
        space, start = experiment.problem.space, experiment.problem.theta_0
        if space.named:
            rows = zip(space.names, start.tolist(), best.theta.tolist(), strict=True)
            fields["parameters"] = {name: {"old": old, "new": new} for name, old, new in rows}
        file = self.folder() / "best.json"
        try:
            best_file.write(file, fields)
        except OSError as error:
            self.get_logger().error(f"best.json not written: {error}")

    def apply(self, changes: dict[str, Any]) -> None:
        if self.experiment is None:
            return
        if "episodes" in changes:
            self.experiment.set_budget(parameters.budget(changes["episodes"], self.problem().episodes))
        wanted = {"gamma": changes["gamma"]} if changes.get("gamma", 0.0) > 0.0 else {}  # 0: as it is
        wanted |= self._terms(self.problem(), {n: changes[n] for n in ("j_min", "j_min_drop", "risk") if n in changes})
        if "episodes" in changes:
            wanted["budget"] = self.experiment.budget
        if wanted and (hasattr(self.experiment.method, "configure") or set(wanted) != {"budget"}):
            self.experiment.configure(**wanted)
        self._note(lambda folder: manifest.thresholds(folder, SOMEBODY, wanted))
        self._changed.set()

    def _note(self, write: Callable[[Path], None]) -> None:
        """Into the manifest. What cannot be written there is told, and changes nothing about the run."""
        try:
            write(self.folder())
        except (OSError, CrboError) as error:
            self.get_logger().error(f"manifest.json not written: {error}")

    def diagnose(self) -> tuple[bytes, str, dict[str, Any]]:
        experiment = self.experiment
        if experiment is None:
            return base.WARN, "not configured", {}
        values = {"state": experiment.state, "completed": experiment.method.n, "pending": len(experiment.pending)}
        level = base.OK if experiment.state in ("running", "finished") else base.WARN
        return level, experiment.message or experiment.state, values

    # -- services -----------------------------------------------------------------------------------

    def _propose(self, request: Any, response: Any) -> Any:
        experiment = self.experiment
        if experiment is None or not self.active:
            response.status, response.reason, response.retry_after = response.WAIT, "the optimizer is not active", 0.5
            return response
        memory = experiment.store.database
        try:
            memory.meet(convert.from_heads(request.heads), f"runner {request.runner!r}")
            answer = experiment.propose(request.runner, request.request_id, request.experiment_uid)
        except StoreError as error:
            answer = Answer(WAIT, str(error), 1.0, alarm=True)
        response.status, response.reason = ANSWERS[answer.status], answer.reason
        response.retry_after = answer.retry_after
        response.proposal.experiment, response.proposal.experiment_uid = experiment.name, experiment.uid
        response.proposal.problem = answer.problem
        if answer.offer is not None:
            response.proposal = convert.to_message(answer.offer)
            if answer.status == OK:
                self._proposal.publish(response.proposal)
        if answer.status == REFUSED:
            self.complain("propose", f"{request.runner!r} asked for a proposal: refused, {answer.reason}")
        elif answer.alarm:
            self.get_logger().error(answer.reason, throttle_duration_sec=5.0)
        response.heads = convert.to_heads(memory.heads)
        self._changed.set()
        return convert.fit(response)

    def _acknowledge(self, request: Any, response: Any) -> Any:
        experiment = self.experiment
        try:
            if experiment is not None:
                experiment.store.database.meet(convert.from_heads(request.heads), f"runner {request.episode.runner!r}")
            response.status, response.reason = self._record(request.episode)
            response.heads = convert.to_heads(experiment.store.database.heads) if experiment is not None else []
        except StoreError as error:
            response.status, response.reason = RECEIPTS[RETRY], str(error)
            self.get_logger().error(str(error), throttle_duration_sec=5.0)
        convert.fit(response)
        if not self._preparing:  # one at a time: two would put each other off for ever
            self._preparing = True
            self._worker.submit(self._prepare)  # after the answer has gone
        return response

    def _prepare(self) -> None:
        """Begin with the next proposal while the runner is still busy with the acknowledgement."""
        if not self._worker.idle:  # first those who wait
            self._worker.submit(self._prepare)
            return
        self._preparing = False
        experiment = self.experiment
        if experiment is not None and self.active:
            try:
                experiment.prepare()
            except StoreError as error:
                self.get_logger().error(str(error))

    def _on_return(self, message: msg.EpisodeReturn) -> None:
        experiment = self.experiment
        if experiment is not None and message.experiment_uid == experiment.uid:
            self._worker.offer(lambda: self._record_topic(message))

    def _record_topic(self, message: msg.EpisodeReturn) -> None:
        experiment = self.experiment
        if experiment is None or message.experiment_uid != experiment.uid or experiment.knows(message.episode_uid):
            return
        self._record(message)

    def _record(self, message: msg.EpisodeReturn) -> tuple[int, str]:
        experiment = self.experiment
        if experiment is None:
            return RECEIPTS[RETRY], "the optimizer is not configured"
        episode = convert.from_message(message, Episode)
        status, reason = experiment.acknowledge(episode)
        if reason:
            self.complain(status, f"episode of proposal {message.proposal_id} by {message.runner!r}: {reason}")
        if status == ACCEPTED and episode.outcome != VETOED:  # (the monitor tells of its vetoes)
            self.get_logger().info(self._lines.line(experiment, episode))
        self._changed.set()
        return RECEIPTS[status], reason

    def _on_status(self, message: msg.RunnerStatus) -> None:
        """A runner's sign of life renews the lease of what it holds. On the executor's thread: it waits for nothing."""
        experiment = self.experiment
        if experiment is not None and message.experiment_uid == experiment.uid and message.proposal_id >= 0:
            experiment.renew(message.proposal_id, message.runner)
            robot = (message.runner, message.robot)
            if message.robot and robot not in self._robots and len(self._robots) < ROBOTS:
                self._robots.add(robot)
                self._worker.submit(lambda: self._note(lambda folder: manifest.robot(folder, *robot)))

    def _on_verdict(self, message: msg.SafetyVerdict) -> None:
        experiment = self.experiment
        if experiment is not None and message.experiment_uid == experiment.uid:
            self._worker.offer(lambda: self._keep_verdict(message))

    def _keep_verdict(self, message: msg.SafetyVerdict) -> None:
        experiment = self.experiment
        if experiment is not None and message.status != msg.SafetyVerdict.WAITING:
            try:
                experiment.add_verdict(convert.from_message(message, Verdict))
            except StoreError as error:
                self.complain("verdict", f"verdict not recorded: {error}")

    def _on_contract(self, message: msg.SafetyContract) -> None:
        """What a person reported to the monitor as a violation is one for the optimizer, too."""
        if message.reported:
            self._worker.submit(lambda: self._mark(message))

    def _mark(self, message: msg.SafetyContract) -> None:
        experiment = self.experiment
        if experiment is None or message.experiment_uid != experiment.uid:
            return
        for id in message.reported:
            try:
                if experiment.mark(id, "reported by a person"):
                    self._changed.set()
            except StoreError as error:
                self.get_logger().warning(f"reported violation not recorded: {error}")

    def _get_best(self, request: Any, response: Any) -> Any:
        experiment = self.experiment
        best = experiment.best() if experiment is not None else None
        if experiment is None or best is None:
            response.reason = "no episode has been completed yet"
            return response
        response.available, response.experiment_uid, response.proposal_id = True, experiment.uid, best.id
        response.theta, response.mean, response.sigma = best.theta.tolist(), best.mean, best.sigma
        response.observed = best.observed
        return response

    def _get_episodes(self, request: Any, response: Any) -> Any:
        experiment = self.experiment
        if experiment is not None and request.experiment_uid in ("", experiment.uid):
            try:
                response.total, episodes = experiment.returns(request.start)
            except StoreError as error:
                self.get_logger().warning(f"get_episodes: {error}")
                return response
            response.episodes = [convert.to_message(episode) for episode in episodes]
        return response

    def _trigger(self, name: str) -> Any:
        def call(request: Any, response: Any) -> Any:
            experiment = self.experiment
            if experiment is None:
                response.success, response.message = False, "the optimizer is not configured"
                return response
            try:
                response.success, response.message = getattr(experiment, name)()
            except StoreError as error:
                response.success, response.message = False, str(error)
            self.get_logger().info(f"{name}: {response.message}")
            if response.success:
                self._note(lambda folder: manifest.command(folder, BY_SERVICE, name))
            self._changed.set()
            return response

        return call

    # -- state --------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._ticking:  # one at a time, however long the worker is busy
            self._ticking = True
            self._worker.submit(self._look_after)

    def _look_after(self) -> None:
        self._ticking = False
        experiment = self.experiment
        if experiment is None:
            return
        try:
            expired = experiment.expire_due()
        except StoreError as error:
            self.get_logger().error(str(error), throttle_duration_sec=5.0)
            return
        if expired:
            self.get_logger().warning(f"expired: proposals {expired}")
            self._changed.set()
        if self._changed.is_set():
            self._changed.clear()
            self._publish_state(experiment)

    def _publish_state(self, experiment: OptimizerServer) -> None:
        summary = experiment.summary()
        message = msg.OptimizerState(
            stamp=self.get_clock().now().to_msg(),
            experiment=experiment.name,
            experiment_uid=experiment.uid,
            task=experiment.task,
            method=experiment.method.name,
            state=STATES[summary["state"]],
            message=summary["message"] or summary.get("region_state", ""),
            dim=experiment.method.space.dim,
            names=experiment.problem.space.names if experiment.problem.space.named else [],
            budget=experiment.budget,
        )
        for name in METRICS:
            setattr(message, name, summary.get(name, math.nan))
        best = summary["best"]
        message.best_id = -1 if best is None else best.id
        message.best_mean = math.nan if best is None else best.mean
        message.best_observed = math.nan if best is None else best.observed
        with self._telling:
            self._newest = convert.fit(message)
            self._state.publish(message)

    def _repeat_state(self) -> None:
        """A sign of life, by the executor: it comes however long the worker computes."""
        with self._telling:
            if self._newest is not None:
                self._state.publish(self._newest)


def main() -> int:
    return base.run_node(OptimizerNode)
