"""The optimizer's state as a value: JSON values and arrays, enough to carry on bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np

from crbo_ros.core.bound import Coverage
from crbo_ros.core.contract import Terms
from crbo_ros.core.gaussian_process import Standardizer
from crbo_ros.core.method import TrialRecord
from crbo_ros.core.outlook import Outlook
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import InvalidInput

if TYPE_CHECKING:
    from crbo_ros.core.crbo import CRBO

NUMBERS = ("mean", "sigma", "worst_case", "worst_case_paper", "gamma")
VERSION = 3


def head(o: CRBO) -> dict[str, Any]:
    """All but the trials: of bounded size. A copy: later calls on the optimizer do not change it."""
    return {
        "method": o.name,
        "version": VERSION,
        "dim": o.space.dim,
        "seed": o.seed,
        "preset": o.settings.preset,
        "parameters": o.surrogate.get_parameters(),
        "gamma": o.gamma,
        "terms": [None if isinstance(v, float) and math.isinf(v) else v for v in astuple(o.terms)],
        "caution": o.caution,
        "vetoes": o.vetoes,
        "veto_distance": None if math.isinf(o.veto_distance) else o.veto_distance,
        "score": [o.score.held, o.score.count, o.score_paper.held, o.score_paper.count],
        "outputs": [o.outputs.centre, o.outputs.scale, o.outputs.grid],
        "incumbent": o.incumbent,
        "metrics": dict(o.metrics),
        "promises": [list(pair) for pair in o.outlook.made],
    }


def trials(records: Sequence[TrialRecord], completed: Sequence[int], dim: int) -> dict[str, Any]:
    """The trials in the order of their ids, and the completed ones in the order of their returns."""
    proposals = [trial.proposal for trial in records]
    return {
        "thetas": np.array([p.theta for p in proposals]).reshape(len(proposals), dim),
        "numbers": np.array([[getattr(p, name) for name in NUMBERS] for p in proposals]).reshape(-1, len(NUMBERS)),
        "values": np.array([trial.value for trial in records], dtype=np.float64),
        "kinds": [p.kind for p in proposals],
        "proposal_reasons": [p.reason for p in proposals],
        "ends": [trial.end.value for trial in records],
        "reasons": [trial.reason for trial in records],
        "violations": [trial.violation for trial in records],
        "completed": list(completed),
    }


def load(o: CRBO, state: dict[str, Any]) -> None:
    """Into a freshly made optimizer with the same settings and seed."""
    for name, own in (("version", VERSION), ("dim", o.space.dim), ("seed", o.seed), ("preset", o.settings.preset)):
        if state.get(name) != own:
            raise InvalidInput(f"state: saved with {name} {state.get(name)!r}, this optimizer has {own!r}")
    o.surrogate.set_parameters(np.array(state["parameters"]))
    records, violations = [], state["violations"]
    for i, theta in enumerate(np.asarray(state["thetas"])):
        numbers = dict(zip(NUMBERS, (float(v) for v in state["numbers"][i]), strict=True))
        proposal = Proposal(i, np.array(theta), state["kinds"][i], reason=state["proposal_reasons"][i], **numbers)
        records.append(
            TrialRecord(
                proposal, TrialStatus(state["ends"][i]), float(state["values"][i]), state["reasons"][i], violations[i]
            )
        )
    o.trials = records
    o._open = {i: None for i, record in enumerate(records) if record.end is TrialStatus.PENDING}
    o._completed = [int(i) for i in state["completed"]]
    o.gamma = state["gamma"]
    risk, j_min, drop, *rest = state["terms"]
    o.terms = Terms(risk, -math.inf if j_min is None else j_min, math.inf if drop is None else drop, *rest)
    o.caution, o.vetoes = state["caution"], state["vetoes"]
    o.veto_distance = math.inf if state["veto_distance"] is None else state["veto_distance"]
    held, count, held_paper, count_paper = state["score"]
    o.score, o.score_paper = Coverage(held, count), Coverage(held_paper, count_paper)
    o.outputs = Standardizer(*state["outputs"])
    o.incumbent = state.get("incumbent")
    o.metrics = dict(state["metrics"])
    o.outlook = Outlook([(float(best), float(said)) for best, said in state.get("promises", [])])
