"""A runner of your own: plain rclpy and crbo_ros's messages, none of its Python. Step by step: docs/INTEGRATION.md."""

import math
from time import monotonic, sleep, time_ns

import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data

from crbo_ros.msg import EpisodeReturn, SafetyHeartbeat, SafetyVerdict
from crbo_ros.srv import AcknowledgeEpisode, CheckRollout, ProposePolicy

rclpy.init()
node = rclpy.create_node("own_runner")
me, heard = node.get_fully_qualified_name(), {"at": -math.inf}
services = {ProposePolicy: "propose_policy", CheckRollout: "check_rollout", AcknowledgeEpisode: "acknowledge_episode"}
clients = {type_: node.create_client(type_, name) for type_, name in services.items()}
latched, sensor = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL), qos_profile_sensor_data
returns = node.create_publisher(EpisodeReturn, "episode_return", latched)
node.create_subscription(SafetyHeartbeat, "safety_heartbeat", lambda m: heard.update(at=monotonic(), beat=m), sensor)


def call(type_, **fields):  # every call may be repeated, so: again until there is an answer
    clients[type_].wait_for_service()
    future, deadline = clients[type_].call_async(type_.Request(**fields)), monotonic() + 20.0
    while not future.done() and monotonic() < deadline:
        rclpy.spin_once(node, timeout_sec=0.05)
    return future.result() if future.done() else call(type_, **fields)


def may_move(verdict):  # an approval counts only while the monitor that gave it lives and is armed
    rclpy.spin_once(node, timeout_sec=0.0)
    return monotonic() - heard["at"] < 0.5 and heard["beat"].armed and heard["beat"].monitor_uid == verdict.monitor_uid


def run_episode(theta, verdict):  # YOUR ROBOT: outcome and return. Here: 20 steps, best at theta = 0.7
    for _ in range(20):
        if not may_move(verdict):
            return EpisodeReturn.STOPPED, math.nan
        sleep(0.005)
    return EpisodeReturn.COMPLETED, -sum((t - 0.7) ** 2 for t in theta)


unique = f"{me}-{time_ns()}"
while (answer := call(ProposePolicy, runner=me, request_id=unique)).status != answer.DONE:
    p, verdict = answer.proposal, SafetyVerdict()
    if answer.status == answer.OK:
        verdict = call(CheckRollout, proposal=p, runner=me).verdict
    mine = (verdict.runner, verdict.proposal_id, verdict.theta_hash) == (me, p.id, p.theta_hash)
    if not mine or verdict.status == verdict.WAITING or (verdict.status == verdict.APPROVED and not may_move(verdict)):
        unique = f"{me}-{time_ns()}" if answer.status == answer.REFUSED else unique
        sleep(0.05)  # and ask again: the same request_id yields the same proposal
        continue
    end = run_episode(p.theta, verdict) if verdict.status == verdict.APPROVED else (EpisodeReturn.VETOED, math.nan)
    result = EpisodeReturn(experiment_uid=p.experiment_uid, proposal_id=p.id, theta=p.theta, runner=me)
    result.outcome, result.value, result.episode_uid, result.verdict_id = *end, unique, verdict.verdict_id
    returns.publish(result)  # the monitor learns from it
    while call(AcknowledgeEpisode, episode=result).status == AcknowledgeEpisode.Response.RETRY:
        sleep(1.0)
    unique = f"{me}-{time_ns()}"
print("best:", [round(t, 3) for t in answer.proposal.theta], answer.reason)
