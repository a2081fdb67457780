"""What a person asks of a run first, answered from its RunView: the report begins with it, and so does `inspect`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crbo_ros.core.outlook import LATELY
from crbo_ros.numbers import UNKNOWN, number, percent
from crbo_ros.view.run_view import Row, RunView

AT_BOUND = 1e-3  # of the range: so near is on it
SHOWN = 12  # parameters by name
MOVED, MOST = 0.1, 3  # of the range: a change worth counting; and how many of them are named


def answers(run: RunView) -> list[tuple[str, str]]:
    """(question, answer), in the order in which they are asked."""
    return [
        ("Is it better?", better(run)),
        ("How sure is that?", certainty(run)),
        ("Is it worth going on?", outlook(run)),
        ("What changed in the behaviour?", behaviour(run)),
        ("What was spent?", spent(run)),
        ("Which parameters sit on their bounds?", bounds_text(run)),
    ]


def start_value(run: RunView) -> float:
    """The mean return of theta_0's own rollouts."""
    theta_0 = run.experiment["theta_0"] if run.experiment else np.empty(0)
    values = [row.value for row in run.counted if row.episode and np.array_equal(row.episode.theta, theta_0)]
    return float(np.mean(values)) if values else math.nan


def better(run: RunView) -> str:
    if run.best is None:
        return "not known: no episode was completed"
    start = start_value(run)
    expected = run.best.mean if math.isfinite(run.best.mean) else run.best.observed
    share = f", {100.0 * (expected - start) / abs(start):+.0f} % of |J0|" if start else ""
    word = "yes" if expected > start else "no"
    return f"{word}: {number(start)} (theta_0) → {number(expected)} (proposal {run.best.id}{share})"


def certainty(run: RunView) -> str:
    if run.best is None or not math.isfinite(run.best.p_better):
        return "this method does not say; crbo accept lets both run in turns until it is certain"
    low, high = map(number, run.best.interval)
    return (
        f"by the model {percent(run.best.p_better)}, 95 %: {low} to {high}; its best was chosen by the same data: crbo "
        "accept lets both run in turns until it is certain"
    )


def outlook(run: RunView) -> str:
    """What came of late, and what the model expects of one more episode; the cost of one is for people to know."""
    best, gain = run.metric("best_mean")[1], run.metric("expected_gain")[1]
    if not len(gain):
        return "not known: this method does not say, or has not begun to search"
    count = min(LATELY, len(best) - 1)
    lately = f"the last {count} proposals raised its best by {number(best[-1] - best[-1 - count])}; " if count else ""
    return f"{lately}another episode is expected to gain {number(gain[-1])}"


def behaviour(run: RunView) -> str:
    """Which parameters moved most, and the safety signals, old against new; the report draws both beside each other."""
    if run.best is None or run.space is None or run.experiment is None:
        return UNKNOWN
    start, best = run.experiment["theta_0"], run.best.theta
    moved = run.space.to_unit(best) - run.space.to_unit(start)
    names = run.names or [f"theta[{i}]" for i in range(len(moved))]
    most = [i for i in np.argsort(-np.abs(moved), kind="stable")[:MOST] if moved[i]]
    listed = ", ".join(f"{names[i]} {number(start[i])} → {number(best[i])}" for i in most)
    share = int(np.sum(np.abs(moved) > MOVED))
    parts = [f"{share} of {len(moved)} parameters moved by more than {percent(MOVED)} of their range"]
    parts[0] += f", most {listed}" if listed else ""
    old, new = (_signals(run, theta) for theta in (start, best))
    parts += [f"{name} up to {number(old[name])} → {number(new[name])}" for name in old if name in new]
    return "; ".join(parts)


def _signals(run: RunView, theta: Any) -> dict[str, float]:
    """The largest value of each safety signal over a policy's rollouts."""
    found: dict[str, float] = {}
    for episode in (row.episode for row in run.counted):
        if episode is not None and np.array_equal(episode.theta, theta):
            for name, value in zip(episode.signal_names, episode.signal_values, strict=True):
                found[name] = max(found.get(name, -math.inf), value)
    return found


def spent(run: RunView) -> str:
    seconds = sum(row.episode.duration for row in run.rows if row.episode)
    moved = f"{number(seconds / 60.0)} min {'on the robot' if run.hardware else 'of simulated time'}"
    fallen = UNKNOWN
    if run.contract is not None and run.contract.contract.active:
        account = run.contract.contract.account
        fallen = f"{account.violations} ({account.novel_violations} by new policies, {account.limit} were allowed)"
    stopped = sum(row.outcome in ("stopped", "failed") for row in run.rows)
    ended = f"{len(run.vetoes)} vetoes; {stopped} without a return"
    return f"{len(run.returns)} episodes, {moved}; violations {fallen}; {ended}"


def at_bounds(run: RunView) -> list[str]:
    """The best policy's parameters that lie on an edge of the domain, and on which."""
    if run.best is None or run.space is None:
        return []
    x = run.space.to_unit(run.best.theta)
    names = run.names or [f"theta[{i}]" for i in range(len(x))]
    edges = {"lower": x <= AT_BOUND, "upper": x >= 1.0 - AT_BOUND}
    return [f"{names[i]} ({edge})" for i in range(len(x)) for edge, there in edges.items() if there[i]]


def bounds_text(run: RunView) -> str:
    found = at_bounds(run)
    if not found:
        return "none"
    of = f"{len(found)} of {len(run.best.theta) if run.best else 0}"
    more = ", ..." if len(found) > SHOWN else ""
    return f"{of}: {', '.join(found[:SHOWN])}{more}. A wider domain may hold better policies"


def describe(row: Row) -> str:
    """A proposal, what was said of it and what came of it, in lines: what a pointer that rests on it sees."""
    p, verdict = row.proposal, row.verdict
    lines = [f"proposal {row.id}" + (f" ({row.kind})" if row.kind else "") + f": {row.outcome}"]
    expected = f", expected {number(p.mean)} ± {number(p.sigma)}" if p and math.isfinite(p.mean) else ""
    lines.append(f"return {number(row.value)}{expected}, worst case {number(row.bound)}")
    lines += [f"{verdict.status}: {verdict.reason}"] if verdict else []
    lines += [row.reason] if row.reason and not (verdict and row.reason == verdict.reason) else []
    return "\n".join(lines)
