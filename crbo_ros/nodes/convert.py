"""Values <-> messages. Field by field, nothing else."""

from __future__ import annotations

import math

import numpy as np
from builtin_interfaces.msg import Duration, Time

from crbo_ros import msg
from crbo_ros.core import experiment as states
from crbo_ros.core.records import APPROVED, OUTCOMES, REFUSED, WAITING, Episode, Verdict
from crbo_ros.core.types import Proposal, theta_hash

OUTCOME_CODES = {
    "completed": msg.EpisodeReturn.COMPLETED,
    "terminated": msg.EpisodeReturn.TERMINATED,
    "stopped": msg.EpisodeReturn.STOPPED,
    "failed": msg.EpisodeReturn.FAILED,
    "vetoed": msg.EpisodeReturn.VETOED,
}
assert set(OUTCOME_CODES) == set(OUTCOMES)
OUTCOME_WORDS = {code: word for word, code in OUTCOME_CODES.items()}
STATUS_CODES = {
    WAITING: msg.SafetyVerdict.WAITING,
    APPROVED: msg.SafetyVerdict.APPROVED,
    REFUSED: msg.SafetyVerdict.VETOED,
}
STATUS_WORDS = {code: word for word, code in STATUS_CODES.items()}
STATE_CODES = {
    states.RUNNING: msg.OptimizerState.RUNNING,
    states.PAUSED: msg.OptimizerState.PAUSED,
    states.FINISHED: msg.OptimizerState.FINISHED,
    states.EXHAUSTED: msg.OptimizerState.EXHAUSTED,
    states.ERROR: msg.OptimizerState.ERROR,
}


def to_time(seconds: float) -> Time:
    whole = math.floor(seconds)
    return Time(sec=int(whole), nanosec=min(int((seconds - whole) * 1e9), 999_999_999))


def to_duration(seconds: float) -> Duration:
    whole = math.floor(seconds)
    return Duration(sec=int(whole), nanosec=min(int((seconds - whole) * 1e9), 999_999_999))


def to_seconds(stamp: Time | Duration) -> float:
    return stamp.sec + 1e-9 * stamp.nanosec


def proposal_to_msg(proposal: Proposal, experiment: str, uid: str, stamp: Time, expires: float) -> msg.Proposal:
    return msg.Proposal(
        stamp=stamp,
        experiment=experiment,
        experiment_uid=uid,
        id=proposal.id,
        theta=proposal.theta.tolist(),
        theta_hash=theta_hash(proposal.theta),
        kind=proposal.kind,
        reason=proposal.reason,
        predicted_mean=proposal.mean,
        predicted_sigma=proposal.sigma,
        worst_case=proposal.worst_case,
        worst_case_paper=proposal.worst_case_paper,
        gamma=proposal.gamma,
        expires=to_time(expires),
    )


def episode_to_msg(episode: Episode) -> msg.EpisodeReturn:
    return msg.EpisodeReturn(
        stamp=to_time(episode.stamp),
        experiment_uid=episode.experiment_uid,
        proposal_id=episode.proposal_id,
        episode_uid=episode.episode_uid,
        runner=episode.runner,
        theta=episode.theta.tolist(),
        outcome=OUTCOME_CODES[episode.outcome],
        value=episode.value,
        reason=episode.reason,
        verdict_id=episode.verdict_id,
        predicted_worst_case=episode.predicted_worst_case,
        steps=episode.steps,
        duration=episode.duration,
        deadline_misses=episode.deadline_misses,
        max_jitter=episode.max_jitter,
    )


def episode_from_msg(message: msg.EpisodeReturn) -> Episode:
    return Episode(
        episode_uid=message.episode_uid,
        experiment_uid=message.experiment_uid,
        proposal_id=message.proposal_id,
        runner=message.runner,
        theta=np.array(message.theta, dtype=np.float64),
        outcome=OUTCOME_WORDS.get(message.outcome, f"code {message.outcome}"),
        value=message.value,
        reason=message.reason,
        verdict_id=message.verdict_id,
        predicted_worst_case=message.predicted_worst_case,
        steps=message.steps,
        duration=message.duration,
        deadline_misses=message.deadline_misses,
        max_jitter=message.max_jitter,
        stamp=to_seconds(message.stamp),
    )


def verdict_to_msg(verdict: Verdict) -> msg.SafetyVerdict:
    return msg.SafetyVerdict(
        status=STATUS_CODES[verdict.status],
        verdict_id=verdict.verdict_id,
        monitor_uid=verdict.monitor_uid,
        experiment_uid=verdict.experiment_uid,
        proposal_id=verdict.proposal_id,
        theta_hash=verdict.theta_hash,
        runner=verdict.runner,
        stamp=to_time(verdict.stamp),
        valid_for=to_duration(verdict.valid_for),
        worst_case=verdict.worst_case,
        threshold=verdict.threshold,
        nearest_id=verdict.nearest_id,
        distance=verdict.distance,
        lipschitz=verdict.lipschitz,
        lipschitz_source=verdict.lipschitz_source,
        reason=verdict.reason,
    )


def verdict_from_msg(message: msg.SafetyVerdict) -> Verdict:
    return Verdict(
        status=STATUS_WORDS.get(message.status, f"code {message.status}"),
        experiment_uid=message.experiment_uid,
        proposal_id=message.proposal_id,
        theta_hash=message.theta_hash,
        runner=message.runner,
        reason=message.reason,
        monitor_uid=message.monitor_uid,
        verdict_id=message.verdict_id,
        stamp=to_seconds(message.stamp),
        valid_for=to_seconds(message.valid_for),
        worst_case=message.worst_case,
        threshold=message.threshold,
        nearest_id=message.nearest_id,
        distance=message.distance,
        lipschitz=message.lipschitz,
        lipschitz_source=message.lipschitz_source,
    )
