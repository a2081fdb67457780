"""How to bring back what is not whole in an experiment's folder from what the other stores know.

A damaged file is kept beside the new one. What it still says as it was written is taken over (protocol/salvage.py);
what is missing then comes from the other stores: results from the runners' spools or from bags, the proposals and the
method's state by asking the method again (same seed, same proposals, and only where theta is the same bit for bit), the
monitor's returns from the spools or, marked as unverified, from the optimizer's store.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.core.method import Method
from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import StoreError
from crbo_ros.protocol import store
from crbo_ros.protocol.database import claim, from_blob, null, to_blob
from crbo_ros.protocol.optimizer import ENDS
from crbo_ros.protocol.records import APPROVED, Episode, new_uid
from crbo_ros.protocol.replay import apply
from crbo_ros.protocol.salvage import EXPERIMENT, MONITOR, Finding, Row, Rows, rewrite, salvage, verify
from crbo_ros.protocol.store import scales, stored_space

MakeMethod = Callable[[Row], Method]  # from the experiment's own row


@dataclass
class Folder:
    """The rows of all stores of a folder as far as they are as they were written, and what was done about the rest."""

    path: Path
    make: MakeMethod
    recorded: list[Episode] = field(default_factory=list)  # from bags
    findings: dict[str, Finding] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for finding in verify(self.path):
            name = finding.path.name
            self.findings[name] = finding
            self.rows[name], self.lost[name] = salvage(finding.path, finding.former)

    def damaged(self, name: str) -> bool:
        return name in self.findings and bool(self.findings[name].wrong)

    def say(self, name: str, text: str) -> None:
        self.told.append(f"{name}: {text}")

    @property
    def spools(self) -> list[str]:
        return [name for name in self.rows if name not in (EXPERIMENT, MONITOR)]

    @property
    def experiment(self) -> Row | None:
        rows = self.rows.get(EXPERIMENT, {}).get("experiment", [])
        return rows[0] if rows else None

    def spooled(self) -> Iterator[Episode]:
        """What the runners' own records say, in their order."""
        for name in self.spools:
            for row in self.rows[name].get("results", []):
                if self.experiment is None or row["experiment_uid"] == self.experiment["uid"]:
                    yield Episode.from_json(row["episode"])

    def results(self) -> list[Episode]:
        """What the runners say they have measured or decided; then what only a bag has."""
        found = {episode.episode_uid: episode for episode in self.spooled()}
        for episode in self.recorded:
            if self.experiment is not None and episode.experiment_uid == self.experiment["uid"]:
                found.setdefault(episode.episode_uid, episode)
        return list(found.values())


def repair(folder: Path, method: MakeMethod, recorded: Iterable[Episode] = ()) -> tuple[list[str], bool]:
    """Bring back what can be had; what was done and what is lost, in words, and whether all is whole now.

    `recorded`: results that were heard on a topic, for what no store has; nobody vouches for them but their theta.
    """
    stores = sorted(folder.glob("*.sqlite"))
    if not stores:
        raise StoreError(f"{folder}: holds no store (*.sqlite); nothing to repair")
    with contextlib.ExitStack() as claims:
        for path in stores:
            claims.callback(os.close, claim(path))
        found = Folder(folder, method, [e for e in recorded if e.outcome in ENDS and (e.counts or e.value != e.value)])
        for name, mend in ((EXPERIMENT, _experiment), (MONITOR, _monitor), *((n, _spool) for n in found.spools)):
            if not found.damaged(name):
                if name in found.findings:
                    found.say(name, "whole, left as it is")
                continue
            if not mend(found, name):
                continue
            kept = rewrite(folder / name, found.rows[name])
            found.say(
                name, f"written anew ({sum(map(len, found.rows[name].values()))} rows); the old file is {kept.name}"
            )
    left = [finding for finding in verify(folder) if finding.wrong]
    return found.told, not left


def _experiment(folder: Folder, name: str) -> bool:
    rows, experiment = folder.rows[name], folder.experiment
    if experiment is None:
        folder.say(name, "its own row (task, domain, settings) is lost, and nobody else has it: start a new experiment")
        return False
    proposals = {row["id"]: {"events": -1, **row} for row in rows.get("proposals", [])}
    episodes = {row["episode_uid"]: row for row in rows.get("episodes", []) if row["proposal_id"] in proposals}
    events = {row["sequence"]: row for row in rows.get("events", [])}
    told = {e.proposal_id: e for e in folder.results() if e.outcome in ENDS}
    gaps = [place for place in folder.lost[name] if place.split()[0] in ("proposals", "events", "snapshot")]
    gaps += [uid for uid in (e.episode_uid for e in told.values()) if uid not in episodes]
    if gaps and not folder.findings[name].former and not _ask_again(folder, name, experiment, proposals, events, told):
        return False
    spooled = {episode.episode_uid for episode in folder.spooled()}
    for episode in folder.results():
        row = proposals.get(episode.proposal_id)
        if row is None or episode.episode_uid in episodes or not np.array_equal(from_blob(row["theta"]), episode.theta):
            continue
        episodes[episode.episode_uid] = _episode_row(episode)
        end = ENDS[episode.outcome][1].value
        if row["end"] == "pending":
            row.update(end=end, end_reason=episode.reason, ended=episode.stamp)
        source = "spool" if episode.episode_uid in spooled else "bag, unverified"
        folder.say(name, f"the result of proposal {episode.proposal_id} ({episode.outcome}) came from a {source}")
    for row in proposals.values():
        if row["end"] == "completed" and not any(e["proposal_id"] == row["id"] for e in episodes.values()):
            folder.say(name, f"LOST: the return of proposal {row['id']}; nobody else has it")
    for place in folder.lost[name]:
        table, _, number, *_ = place.split()
        if table == "proposals" and number.isdigit() and int(number) not in proposals:
            folder.say(name, f"LOST: proposal {number}, which was pending or has no result in any spool")
    verdicts = [row for row in rows.get("verdicts", []) if row["proposal_id"] in proposals]
    if gone := [place for place in folder.lost[name] if place.split()[0] in ("verdicts", "flags", "chain")]:
        folder.say(name, f"LOST: {', '.join(gone)}")
    order = sorted(episodes.values(), key=lambda e: e["stamp"])
    rows.update(proposals=list(proposals.values()), episodes=order, verdicts=verdicts)
    rows["events"] = [events[number] for number in sorted(events)]
    return True


def _ask_again(
    folder: Folder, name: str, experiment: Row, proposals: dict[int, Row], events: dict[int, Row],
    told: dict[int, Episode],
) -> bool:  # fmt: skip
    """Ask the method for its proposals again; fills in those that are missing, the events, and the method's state.

    False: the state is lost, and the experiment cannot go on.
    """
    method = folder.make(_readable(experiment))
    sequence, last = 0, max([*proposals, *told], default=-1)
    state, at = b"", 0
    try:
        for id in range(last + 1):
            if id not in proposals:  # what was known when it was made: all ends before it, and none of later ones
                while (event := events.get(sequence + 1)) and _about(event) < id:
                    sequence = _next(method, events, sequence, told)
                for earlier in range(id):
                    sequence = _end(method, earlier, told, events, sequence)
            while id in proposals and sequence < proposals[id]["events"]:
                sequence = _next(method, events, sequence, told)
            proposal = method.ask()
            known = from_blob(proposals[id]["theta"]) if id in proposals else told[id].theta if id in told else None
            if known is None or not np.array_equal(known, proposal.theta):
                raise StoreError(f"proposal {id} does not come out the same when the method is asked again")
            if id not in proposals:
                proposals[id] = _proposal_row(proposal, told[id], sequence)
                folder.say(name, f"proposal {id} was made again, bit for bit")
            state, at = store.dump_state(method.state()), sequence
        while events and sequence < max(events):
            sequence = _next(method, events, sequence, told)
        for id in sorted(method.pending):
            sequence = _end(method, id, told, events, sequence)
    except Exception as error:  # of a method that is not ours, too
        snapshot = folder.rows[name].get("snapshot")
        kept = "the last one that was saved is kept" if snapshot else "LOST: this experiment cannot go on; export it"
        folder.say(name, f"the method's state could not be made again ({error}); {kept}")
        return bool(snapshot)
    folder.rows[name]["snapshot"] = [{"only": 1, "sequence": at, "state": state}] if state else []
    return True


def _about(event: Row) -> int:
    """The proposal that an event is about; -1 for one that is about none."""
    first = json.loads(event["arguments"])[0]
    return first if isinstance(first, int) else -1


def _next(method: Method, events: dict[int, Row], sequence: int, told: dict[int, Episode]) -> int:
    """Repeat the next event; one that is missing is the end of the oldest pending proposal that has a result."""
    event = events.get(sequence + 1)
    if event is None:
        for id in sorted(method.pending):
            if (after := _end(method, id, told, events, sequence)) > sequence:
                return after
        raise StoreError(f"event {sequence + 1} is lost")
    if not event["aside"]:
        apply(method, event["verb"], json.loads(event["arguments"]))
    return sequence + 1


def _end(method: Method, id: int, told: dict[int, Episode], events: dict[int, Row], sequence: int) -> int:
    """Tell the method how a pending proposal ended, if a runner knows."""
    episode = told.get(id)
    if episode is None or id not in method.pending:
        return sequence
    verb = ENDS[episode.outcome][0]
    arguments = [id, episode.value if episode.counts else episode.reason]
    apply(method, verb, arguments)
    events[sequence + 1] = {"sequence": sequence + 1, "verb": verb, "arguments": json.dumps(arguments), "aside": ""}
    return sequence + 1


def _readable(row: Row) -> Row:
    """As store.ExperimentStore.experiment gives it."""
    vectors = {name: from_blob(row[name]) for name in ("lower", "upper", "theta_0")}
    integer, log = scales(row["log_scale"])
    return {**row, **vectors, "log_scale": log, "integer": integer, "config": json.loads(row["config"])}


def _proposal_row(proposal: Any, episode: Episode, sequence: int) -> Row:
    numbers = {name: null(getattr(proposal, name)) for name in "mean sigma worst_case worst_case_paper gamma".split()}
    return {
        "id": proposal.id, "runner": episode.runner, "request_id": f"repaired-{new_uid()}",
        "theta": to_blob(proposal.theta), "kind": proposal.kind, "reason": proposal.reason, **numbers,
        "created": episode.stamp, "report": "{}", "end": "pending", "end_reason": "", "ended": None, "events": sequence,
    }  # fmt: skip


def _episode_row(episode: Episode) -> Row:
    names = (
        "episode_uid proposal_id runner outcome reason verdict_id steps duration deadline_misses max_lateness stamp "
        "problem"
    ).split()
    numbers = {name: null(getattr(episode, name)) for name in ("value", "predicted_worst_case")}
    return {**{name: getattr(episode, name) for name in names}, **numbers}


def _episodes(folder: Folder) -> Iterator[Episode]:
    """The optimizer's episodes, with the thetas of their proposals."""
    rows = folder.rows.get(EXPERIMENT, {})
    thetas = {row["id"]: from_blob(row["theta"]) for row in rows.get("proposals", [])}
    for row in rows.get("episodes", []):
        if folder.experiment is not None and row["proposal_id"] in thetas:
            fields: Row = {name: np.nan if value is None else value for name, value in row.items()}
            signals = json.loads(fields.pop("signals", "[[], [], []]"))
            fields |= dict(zip(("signal_names", "signal_values", "signal_limits"), map(tuple, signals), strict=True))
            yield Episode(experiment_uid=folder.experiment["uid"], theta=thetas[row["proposal_id"]], **fields)


def _monitor(folder: Folder, name: str) -> bool:
    rows, experiment = folder.rows[name], folder.experiment
    if experiment is None:
        folder.say(name, "cannot be brought back without the experiment's own row; delete it: the monitor asks anew")
        return False
    facts = _readable(experiment)
    space = stored_space(facts)
    returns = {row["episode_uid"]: row for row in rows.get("returns", [])}
    before, spooled = len(returns), {e.episode_uid for e in folder.spooled()}
    for episode in [*folder.results(), *_episodes(folder)]:
        if episode.counts and episode.episode_uid not in returns:
            returns[episode.episode_uid] = {
                "episode_uid": episode.episode_uid, "experiment_uid": episode.experiment_uid,
                "proposal_id": episode.proposal_id, "x": to_blob(space.to_unit(episode.theta)), "value": episode.value,
                "verdict_id": episode.verdict_id, "unverified": int(episode.episode_uid not in spooled),
            }  # fmt: skip
    if len(returns) > before:
        folder.say(name, f"{len(returns) - before} returns came from the spools and the optimizer's store")
    approvals = {row["verdict_id"]: row for row in rows.get("approvals", [])}
    thetas = {row["id"]: from_blob(row["theta"]) for row in folder.rows[EXPERIMENT].get("proposals", [])}
    for row in folder.rows[EXPERIMENT].get("verdicts", []):
        if row["status"] == APPROVED and row["verdict_id"] not in approvals and row["proposal_id"] in thetas:
            approvals[row["verdict_id"]] = {**row, "theta_hash": theta_hash(thetas[row["proposal_id"]])}
    flags = {row["name"]: row["value"] for row in rows.get("flags", [])}
    flags = {"experiment_uid": experiment["uid"], "problem": experiment["problem"], **flags}
    if not folder.findings[name].former:
        flags["stopped"] = flags.get("stopped") or "its store was repaired: look at the thresholds, then rearm"
    if gone := [p for p in folder.lost[name] if p.split()[0] not in ("returns", "approvals", "flags", "heads")]:
        folder.say(name, f"LOST: {', '.join(gone)} (operator's decisions and changes of thresholds: look at them)")
    rows.update(returns=sorted(returns.values(), key=lambda r: r["proposal_id"]), approvals=list(approvals.values()))
    rows["flags"] = [{"name": key, "value": value} for key, value in flags.items()]
    return True


def _spool(folder: Folder, name: str) -> bool:
    rows = folder.rows[name]
    results = {row["episode_uid"]: row for row in rows.get("results", [])}
    executions = {row["episode_uid"]: row for row in rows.get("executions", [])}
    before, runner = len(results), name.removesuffix(".sqlite")
    for episode in _episodes(folder):
        if episode.runner.strip("/").replace("/", ".") == runner and episode.episode_uid not in results:
            results[episode.episode_uid] = {
                "episode_uid": episode.episode_uid, "experiment_uid": episode.experiment_uid,
                "episode": episode.to_json(), "state": "done", "answer": "repaired",
            }  # fmt: skip
    if not any(rows.values()) and not results:
        folder.say(name, "nothing of it can be read, and nobody else knows anything of it; delete it to begin anew")
        return False
    if len(results) > before:
        folder.say(name, f"{len(results) - before} results came from the optimizer's store")
    if gone := [place for place in folder.lost[name] if place.split()[0] in ("executions", "request")]:
        folder.say(name, f"LOST: {', '.join(gone)} (what was begun, and how it ended; what it was about to ask for)")
    rows.update(results=[{**row, "number": None} for row in results.values()], executions=list(executions.values()))
    return True
