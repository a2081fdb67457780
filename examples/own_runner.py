"""A runner of your own: plain rclpy and crbo_ros's messages, none of its Python. Step by step: docs/INTEGRATION.md.
It survives no kill and checks neither CRBO_KEY's proof nor that each server is the only one: crbo_ros.client does."""

import math
from functools import partial
from time import CLOCK_BOOTTIME, clock_gettime, sleep
from uuid import uuid4

import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from crbo_ros.msg import EpisodeReturn, RunnerStatus, SafetyHeartbeat, SafetyVerdict
from crbo_ros.srv import AcknowledgeEpisode, CheckRollout, ProposePolicy

now = partial(clock_gettime, CLOCK_BOOTTIME)  # s, on a clock that nobody can set and that goes on in suspend
rclpy.init()
node, asked = rclpy.create_node("own_runner"), {}  # asked: when, by question
heard = {"beat": SafetyHeartbeat(), "at": -math.inf, "since": math.inf}
names = {ProposePolicy: "propose_policy", CheckRollout: "check_rollout", AcknowledgeEpisode: "acknowledge_episode"}
clients = {type_: node.create_client(type_, name) for type_, name in names.items()}
latched = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL)
returns = node.create_publisher(EpisodeReturn, "episode_return", latched)
statuses = node.create_publisher(RunnerStatus, "runner_status", latched)
newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def hear(beat):
    if now() - heard["at"] > 0.5 or beat.monitor_uid != heard["beat"].monitor_uid:
        heard["since"] = now()  # somebody new: a single heartbeat may be an old one
    heard.update(beat=beat, at=now())


def call(type_, **fields):  # every call may be repeated, so: again until there is an answer
    while clients[type_].wait_for_service():
        asked[type_], future = now(), clients[type_].call_async(type_.Request(**fields))
        while now() - asked[type_] < 10.0:
            rclpy.spin_once(node, timeout_sec=0.05)
            if future.done():
                return future.result()


def obstacle(verdict):  # an approval counts while the monitor that gave it lives and is armed
    rclpy.spin_once(node, timeout_sec=0.0)
    beat, alive = heard["beat"], now() - heard["at"] < 0.5
    if alive and not beat.armed:
        return "stop"
    sure = alive and heard["at"] - heard["since"] > 0.05 and beat.monitor_uid == verdict.monitor_uid
    return "" if sure else "the monitor is gone"


def run_episode(p, verdict):  # YOUR ROBOT: outcome and return; 0: broken off. Here: 30 steps, best at theta = 0.7
    status = RunnerStatus(runner=me, experiment_uid=p.experiment_uid, proposal_id=p.id, verdict_id=verdict.verdict_id)
    status.state = RunnerStatus.RUNNING
    for _ in range(30):
        if why := obstacle(verdict):  # your robot's safe state, now
            return (EpisodeReturn.STOPPED if why == "stop" else 0), math.nan
        statuses.publish(status)  # renews the lease
        sleep(0.02)
    return EpisodeReturn.COMPLETED, -sum((t - 0.7) ** 2 for t in p.theta)


node.create_subscription(SafetyHeartbeat, "safety_heartbeat", hear, newest)
me, request_id, tries = node.get_fully_qualified_name(), uuid4().hex, 0
while (answer := call(ProposePolicy, runner=me, request_id=request_id)).status != answer.DONE:
    p, v, nonce = answer.proposal, SafetyVerdict(), uuid4().hex
    if answer.status == answer.OK:
        v = call(CheckRollout, proposal=p, runner=me, nonce=nonce).verdict
    told = (v.experiment_uid, v.proposal_id, v.theta_hash, v.runner, v.nonce)
    mine = told == (p.experiment_uid, p.id, p.theta_hash, me, nonce)
    fresh = mine and now() - asked[CheckRollout] < v.valid_for and now() - asked[ProposePolicy] < p.lease
    outcome, value = (EpisodeReturn.VETOED if mine and v.status == v.VETOED else 0), math.nan
    if fresh and v.status == v.APPROVED and not obstacle(v):
        tries += 1
        if tries > 3:
            raise SystemExit(f"proposal {p.id} was broken off three times: look at the robot and at the monitor")
        outcome, value = run_episode(p, v)
    if not outcome:
        request_id = uuid4().hex if answer.status == answer.REFUSED else request_id
        sleep(max(answer.retry_after, 0.05))  # and ask again: the same request_id yields the same proposal
        continue
    end = EpisodeReturn(experiment_uid=p.experiment_uid, problem=p.problem, proposal_id=p.id, theta=p.theta, runner=me)
    end.outcome, end.value, end.episode_uid, end.verdict_id = outcome, value, nonce, v.verdict_id
    returns.publish(end)  # the monitor learns from it
    while call(AcknowledgeEpisode, episode=end).status == AcknowledgeEpisode.Response.RETRY:
        sleep(1.0)
    request_id, tries = uuid4().hex, 0
print("best:", [round(t, 3) for t in answer.proposal.theta], answer.reason)
