"""The contract, recomputed from an experiment's records by nothing but core.contract: anybody can check it.

The safety monitor's own records where they lie beside the optimizer's, else the optimizer's.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.core.contract import Contract, Executed, Terms
from crbo_ros.core.kernels import Array
from crbo_ros.numbers import number, percent
from crbo_ros.protocol.monitor_store import MonitorStore
from crbo_ros.protocol.store import ExperimentStore, stored_space
from crbo_ros.view.journal import MONITOR


@dataclass(frozen=True)
class ContractRecord:
    """The contract at the end of the records, and after each of them."""

    contract: Contract
    ids: list[int]  # proposals, in the order of their ends
    source: str  # whose records

    def balances(self) -> tuple[Array, Array, Array]:
        """(A, violations, allowed violations of novel policies) after each rollout."""
        rows, books = [], self.contract
        for n in range(1, len(self.ids) + 1):
            growing = Contract(replace(books.terms, j_min=books.threshold, j_min_drop=math.inf), books.x0)
            growing.rollouts = books.rollouts[:n]
            account = growing.account
            rows.append((account.balance, account.violations, account.limit))
        found = np.array(rows, dtype=np.float64).reshape(len(rows), 3)
        return found[:, 0], found[:, 1], found[:, 2]


def read_contract(path: Path, store: ExperimentStore) -> ContractRecord | None:
    """From the experiment's open store at `path` and what the monitor left beside it; None where nothing was agreed."""
    facts = store.experiment()
    if facts is None:
        return None
    space = stored_space(facts)
    x0 = space.to_unit(facts["theta_0"])
    if (path.parent / MONITOR).is_file():
        memory = MonitorStore(path.parent / MONITOR, owner=False)
        try:
            text, known = memory.flag("terms"), memory.returns()
        finally:
            memory.close()
        if text:
            contract = Contract(_terms(json.loads(text)), x0)
            for episode in known:
                shown = math.nan if episode.worst_case is None else episode.worst_case
                contract.add(Executed(episode.x, episode.value, episode.violation, shown))
            return ContractRecord(contract, [e.proposal_id for e in known], "the safety monitor's records")
    if not {"j_min", "j_min_drop"} & set(facts["config"]):
        return None
    contract, ids = Contract(_terms(facts["config"]), x0), []
    for ended in store.episodes():
        if ended.executed:
            x = space.to_unit(ended.theta)
            contract.add(Executed(x, ended.value, ended.breach, ended.predicted_worst_case))
            ids.append(ended.proposal_id)
    return ContractRecord(contract, ids, "the optimizer's records")


def _terms(values: dict[str, Any]) -> Terms:
    names = ("risk", "j_min", "j_min_drop", "budget", "start_rollouts", "lipschitz")
    return Terms(**{name: values[name] for name in names if values.get(name) is not None})


def contract_words(record: ContractRecord | None) -> list[tuple[str, str]]:
    """(what, how it stands) for people."""
    if record is None:
        return [("contract", "none: no threshold was agreed, or these records do not tell of one")]
    contract = record.contract
    account, terms = contract.account, contract.terms
    if not contract.active:
        return [("contract", "no threshold is in force"), ("records", record.source)]
    of = f"{terms.budget} rollouts" if terms.budget else "the rollouts, without a budget,"
    promise = math.ceil(terms.risk * terms.budget) if terms.budget else math.inf
    most = f": at most {promise}" if terms.budget else ""
    fallen = [
        f"{id} ({rollout.violation or number(rollout.value)})"
        for id, rollout in zip(record.ids, contract.rollouts, strict=True)
        if rollout.violation or rollout.value < contract.threshold
    ]
    kept = "kept" if account.novel_violations <= account.limit else "BROKEN"
    return [
        ("contract", f"{kept}: of {of} a share of {percent(terms.risk)} may be new policies that fall{most}"),
        ("threshold", f"{number(contract.threshold)}; J0 {number(contract.J0)} from {len(contract.start_values)} start "
                      f"rollouts, spread {number(contract.J0_spread)}"),
        ("executed", f"{account.n}, of them {account.novel} of new policies"),
        ("violations", f"{account.violations}, of them {account.novel_violations} by new policies; by now "
                       f"{account.limit} were allowed" + (f": proposals {', '.join(fallen)}" if fallen else "")),
        ("account", f"holds {number(account.balance)}; a new policy needs {number(account.rate)}; it fills by "
                    f"{number(account.income)} per rollout"),
        ("gate", f"L {number(contract.lipschitz)}, calibrated"
                 + (f", not below your own {number(terms.lipschitz)}" if terms.lipschitz else "")),
        ("worst case", f"held for {percent(contract.coverage.coverage)} of {contract.coverage.count} new policies"),
        ("records", record.source),
        *([("REFUSED", contract.impossible)] if contract.impossible else []),
    ]  # fmt: skip
