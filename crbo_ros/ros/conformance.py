"""Does a foreign runner keep the protocol? What is played to it, and what must come of it."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from typing import Any

from crbo_ros.ros.scripted_servers import ScriptedServers

ATTEMPTS = 3  # on a busy machine a heartbeat of ours may be late
SECONDS = 120.0  # for a runner to get through
RUNS = {"completed", "stopped", "lost"}  # answers after which the policy runs


@dataclass(frozen=True)
class Case:
    """One proposal: the answers it gets, and why they matter."""

    name: str
    verdicts: tuple[str, ...]
    result: str = "completed"
    receipts: tuple[str, ...] = ("accepted",)
    proposes: tuple[str, ...] = ()


CASES = (
    Case("an approved policy runs and is handed in", ("completed",)),
    Case("a vetoed policy does not run, and that is handed in", ("vetoed",), "vetoed"),
    Case("a verdict that waits is asked for again", ("waiting", "completed")),
    Case("a verdict for another question is no answer", ("foreign", "completed")),
    Case("an approval that came too late is not used", ("old", "completed")),
    Case("without a living monitor nothing starts", ("closed", "completed")),
    Case("an operator's stop ends the rollout", ("stopped",), "stopped"),
    Case("a monitor that goes away ends the rollout, which is then repeated", ("lost", "completed")),
    Case("WAIT: the same request_id is asked again", ("completed",), proposes=("wait", "wait")),
    Case("a lost answer: the same request_id is asked again", ("completed",), proposes=("drop",)),
    Case("RETRY: the same result is handed in again", ("completed",), receipts=("retry", "accepted")),
    Case("a result that is known already is done", ("completed",), receipts=("retry", "duplicate")),
)


@dataclass
class Findings:
    """What a runner did wrong, case by case; `disturbed`: the machine was too busy to tell."""

    wrong: list[str] = field(default_factory=list)
    disturbed: bool = False


def schedule() -> dict[str, Any]:
    return {
        "verdicts": [list(case.verdicts) for case in CASES],
        "receipts": [list(case.receipts) for case in CASES],
        "proposes": [list(case.proposes) for case in CASES],
    }


def findings(servers: ScriptedServers, ended: bool) -> Findings:
    """What the servers saw, against what the cases ask for."""
    found = Findings(list(servers.wrong), servers.disturbed)
    results: dict[int, list[str]] = {}
    for id, outcome in servers.results:
        results.setdefault(id, []).append(outcome)
    for id, case in enumerate(CASES):
        runs, wanted = servers.executions.count(id), sum(how in RUNS for how in case.verdicts)
        got = results.get(id, [])
        if runs != wanted:  # as runner_status says RUNNING
            found.wrong.append(f"{case.name}: proposal {id} ran {runs} times, not {wanted}")
        if got != [case.result]:
            ended_as = " and ".join(got) or "nothing"
            found.wrong.append(f"{case.name}: proposal {id} ended as {ended_as}, not {case.result}")
    silent = [verdict for verdict, signs in servers.signs.items() if signs < 2]
    if len(silent) > len(servers.signs) // 2:
        found.wrong.append("the lease is not renewed: runner_status comes once, and not while the policy runs")
    if not ended:
        found.wrong.append("DONE: the runner does not end")
    return found


def play(words: list[str], namespace: str, seconds: float) -> tuple[list[str], bool, str]:
    """(what it did wrong, whether the machine was too busy to tell, what it printed)."""
    servers = ScriptedServers(schedule(), namespace)
    try:
        process = subprocess.Popen(
            [*words, "--ros-args", "-r", f"__ns:={namespace}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        ended = True
        try:
            output = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            ended = False
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
    finally:
        servers.close()
    found = findings(servers, ended)
    if ended and process.returncode:
        found.wrong.append(f"it ended with exit code {process.returncode}")
    return found.wrong, found.disturbed, output


def check(words: list[str], namespace: str, seconds: float = SECONDS) -> tuple[list[str], str]:
    """(what it did wrong, what it printed), played again where the machine was too busy to tell."""
    for attempt in range(ATTEMPTS):
        wrong, disturbed, output = play(words, f"{namespace}_{attempt}", seconds)
        if not disturbed:
            break
    return wrong, output
