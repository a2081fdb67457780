"""A Record as the messages that were on the topics, in the order of their time: (topic, type, time, fields).

Fields are plain values by the names of msg/*.msg, so this needs no ROS; the definitions are read from these files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.core.trial import TrialStatus, theta_hash
from crbo_ros.errors import InvalidInput
from crbo_ros.protocol.records import OUTCOMES, VERDICTS
from crbo_ros.view.record import Entry, Record

RUNNING, FINISHED = 1, 3  # msg/OptimizerState
TOPICS = {
    "proposal": "Proposal",
    "safety_verdict": "SafetyVerdict",
    "episode_return": "EpisodeReturn",
    "optimizer_state": "OptimizerState",
}
BUILTIN = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec\n",
    "builtin_interfaces/Duration": "int32 sec\nuint32 nanosec\n",
}
FIGURES = (
    "gamma gamma_effective r0 lengthscale signal_variance noise_variance lipschitz lipschitz_paper coverage"
).split()

Message = tuple[str, str, float, dict[str, Any]]  # topic, type, seconds, fields


def definition(name: str) -> str:
    """The full text of msg/<name>.msg with what it refers to, as MCAP's schema encoding "ros2msg" wants it."""
    places = [Path(__file__).parents[2] / "msg"]
    places += [Path(p) / "share/crbo_ros/msg" for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    for place in places:
        if (place / f"{name}.msg").is_file():
            text = (place / f"{name}.msg").read_text()
            used = [builtin for builtin in BUILTIN if builtin in text]
            return text + "".join(f"\n{'=' * 80}\nMSG: {builtin}\n{BUILTIN[builtin]}" for builtin in used)
    raise InvalidInput(
        f"{name}.msg was found neither beside the sources nor in an installed crbo_ros (source its setup)"
    )


def messages(record: Record) -> Iterator[Message]:
    """What was published, from the store, in the order of time."""
    if record.experiment is None:
        return
    found: list[Message] = []
    for entry in record.entries:
        found.append(("proposal", "Proposal", entry.created, _proposal(entry, record.experiment)))
        for verdict in entry.verdicts:
            found.append(("safety_verdict", "SafetyVerdict", verdict["stamp"], _verdict(entry, verdict, record)))
        if entry.episode is not None:
            found.append(("episode_return", "EpisodeReturn", entry.episode.stamp, _episode(entry, record)))
    found += _states(record)
    yield from sorted(found, key=lambda message: message[2])


def _proposal(entry: Entry, row: dict[str, Any]) -> dict[str, Any]:
    p = entry.proposal
    return {
        "stamp": stamp(entry.created), "experiment": row["name"], "experiment_uid": row["uid"], "id": p.id,
        "theta": p.theta.tolist(), "theta_hash": theta_hash(p.theta), "kind": p.kind, "reason": p.reason,
        "mean": p.mean, "sigma": p.sigma, "worst_case": p.worst_case,
        "worst_case_paper": p.worst_case_paper, "gamma": p.gamma, "problem": "", "returns": 0, "lease": 0.0,
    }  # fmt: skip


def _verdict(entry: Entry, verdict: dict[str, Any], record: Record) -> dict[str, Any]:
    assert record.experiment is not None
    numbers = {key: _nan(verdict[key]) for key in ("worst_case", "distance", "lipschitz")}
    threshold = -math.inf if verdict["threshold"] is None else verdict["threshold"]
    words = {key: verdict[key] for key in ("verdict_id", "monitor_uid", "runner", "lipschitz_source", "reason")}
    nearest = verdict["nearest_id"]
    return {
        **words, **numbers, "status": VERDICTS.get(verdict["status"], 0), "threshold": threshold,
        "experiment_uid": record.experiment["uid"], "proposal_id": entry.id, "stamp": stamp(verdict["stamp"]),
        "theta_hash": theta_hash(entry.proposal.theta), "valid_for": 0.0,  # not stored, nor are:
        "nonce": "", "proof": "",
        "nearest_id": -1 if nearest is None else nearest,
    }  # fmt: skip


def _episode(entry: Entry, record: Record) -> dict[str, Any]:
    e = entry.episode
    assert e is not None
    return {
        "stamp": stamp(e.stamp), "experiment_uid": e.experiment_uid, "proposal_id": e.proposal_id,
        "episode_uid": e.episode_uid, "runner": e.runner, "theta": e.theta.tolist(),
        "outcome": OUTCOMES[e.outcome], "value": e.value, "reason": e.reason, "verdict_id": e.verdict_id,
        "predicted_worst_case": e.predicted_worst_case, "steps": e.steps, "duration": e.duration,
        "problem": e.problem, "deadline_misses": e.deadline_misses, "max_lateness": e.max_lateness,
    }  # fmt: skip


def _states(record: Record) -> Iterator[Message]:
    """The optimizer's state after each end of a proposal. The recommended policy is known for the last one only."""
    row = record.experiment
    assert row is not None
    by_id = {entry.id: entry for entry in record.entries}
    values: list[float] = []
    counts = {"vetoed": 0, "failed": 0}
    for n, id in enumerate(record.order, 1):
        entry = by_id[id]
        assert entry.episode is not None
        if math.isfinite(entry.value):
            values.append(entry.value)
        else:
            counts["vetoed" if entry.end is TrialStatus.VETOED else "failed"] += 1
        last = n == len(record.order)
        best = record.best if last else None
        figures = {key: _nan(entry.report.get(key)) for key in FIGURES}
        when = entry.episode.stamp
        yield "optimizer_state", "OptimizerState", when, {
            **figures, **counts, "stamp": stamp(when), "experiment": row["name"], "experiment_uid": row["uid"],
            "task": row["task"], "method": row["method"], "state": FINISHED if last and record.finished else RUNNING,
            "message": record.finished if last else entry.reason, "dim": row["dim"], "completed": len(values),
            "budget": 0, "pending": 0, "expired": 0, "last_return": values[-1] if values else math.nan,
            "average_return": float(np.mean(values)) if values else math.nan,
            "best_id": best.id if best else -1, "best_mean": best.mean if best else math.nan,
            "best_observed": best.observed if best else math.nan, "start_return": values[0] if values else math.nan,
            "propose_seconds": math.nan,
        }  # fmt: skip


def stamp(seconds: float) -> dict[str, int]:
    """Seconds as builtin_interfaces/Time."""
    whole = math.floor(seconds)
    return {"sec": int(whole), "nanosec": min(int((seconds - whole) * 1e9), 999_999_999)}


def _nan(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan
