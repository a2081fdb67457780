"""An experiment's store as a RunView: every proposal with its verdicts and its end.

Reading never changes the experiment, and works while an optimizer is writing to it.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from crbo_ros.core.trial import Best
from crbo_ros.errors import StoreError
from crbo_ros.home import home
from crbo_ros.protocol import manifest
from crbo_ros.protocol.records import Offer, Verdict
from crbo_ros.protocol.replay import apply
from crbo_ros.protocol.store import ExperimentStore, stored_space
from crbo_ros.view.contract import read_contract
from crbo_ros.view.journal import read_journal
from crbo_ros.view.run_view import RunView
from crbo_ros.view.states import states

FILE = "experiment.sqlite"


def find_store(experiment: str | Path, experiments_dir: str | Path = "") -> Path:
    """The store behind a folder, a file, or the name of an experiment; StoreError lists what there is."""
    given, place = Path(experiment), home(experiments_dir)
    try:
        for candidate in (given, place / given):
            if candidate.is_file():
                return candidate
            if (candidate / FILE).is_file():
                return candidate / FILE
    except (OSError, ValueError) as error:  # too long, a NUL in it
        raise StoreError(f"{str(experiment)[:60]!r}: cannot be the name of a file ({error.args[-1]})") from None
    known = sorted(path.parent.name for path in place.glob(f"*/{FILE}"))
    there = f"{place} has: {', '.join(known)}" if known else f"there are none in {place} either"
    raise StoreError(f"{experiment}: neither a folder with {FILE}, nor such a file, nor the name of one; {there}")


def find_folder(experiment: str | Path, experiments_dir: str | Path = "") -> Path:
    """The folder of an experiment, should its own store be damaged or gone."""
    with suppress(OSError, ValueError):
        for candidate in (Path(experiment), home(experiments_dir) / experiment):
            if candidate.is_dir() and any(candidate.glob("*.sqlite")):
                return candidate
    return find_store(experiment, experiments_dir).parent


@contextmanager
def open_store(path: Path) -> Iterator[ExperimentStore]:
    """The store for reading. SQLite needs to write beside a WAL database even then: a read-only one is copied."""
    with tempfile.TemporaryDirectory() as scratch:
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            for part in (path, path.with_name(path.name + "-wal"), *path.parent.glob("*.sqlite*")):
                if part.exists() and not part.name.endswith("-shm"):
                    shutil.copyfile(part, Path(scratch) / part.name)
            path = Path(scratch) / path.name
        store = ExperimentStore(path)
        try:
            yield store
        finally:
            store.close()


def read_run(path: Path, *, replay: bool = True) -> RunView:
    """Everything in a store. The recommended policy is the method's own, or else (also without `replay`, which takes
    the method's time) the best observed one."""
    with open_store(path) as store:
        facts = store.experiment()
        run = RunView(path, facts)
        if (path.parent / manifest.FILE).is_file():
            run.manifest = manifest.read_manifest(path.parent)
        if facts is None:
            return run
        about = {"experiment": facts["name"], "experiment_uid": facts["uid"], "problem": facts.get("problem", "")}
        for stored in store.proposals():
            row = run.row(stored.proposal.id)
            row.status, row.status_reason = stored.end, stored.end_reason
            row.runner, row.metrics = stored.runner, stored.report
            run.record(Offer.of(stored.proposal, **about, stamp=stored.created))
        for verdict in store.verdicts():
            run.record(_verdict(verdict, facts["uid"], run))
        for episode in store.episodes():
            run.record(replace(episode, problem=about["problem"]))  # (a runner of somebody's own may leave it out)
        run.names, run.finished = store.names(), store.flag("finished")
        run.best, run.best_source = _best(store, facts, run, replay)
        run.contract = read_contract(store.database.path, store)
        approved = {verdict.verdict_id: verdict.stamp for row in run.rows for verdict in row.verdicts}
        run.journal = read_journal(store.database.path.parent, run.manifest, approved)
        run.state = next(iter(deque(states(run), maxlen=1)), None)
        return run


def remake(run: RunView, plant: str = "", **options: Any) -> Any:
    """The run's task once more, as its record describes it; options given here override those."""
    from crbo_ros.registry import make_task

    assert run.experiment is not None
    known = manifest.recorded_options(run.path.parent) if run.manifest else {}
    return make_task(run.experiment["task"], plant or run.plant or None, **{**known, **options})


def _verdict(stored: dict[str, Any], uid: str, run: RunView) -> Verdict:
    """A stored verdict; what is not stored (nonce, proof, validity) is left out."""
    known = {name: value for name, value in stored.items() if value is not None}
    proposal = run.row(stored["proposal_id"]).proposal
    return Verdict(experiment_uid=uid, theta_hash=proposal.theta_hash if proposal else "", **known)


def _best(store: ExperimentStore, row: dict[str, Any], run: RunView, replay: bool) -> tuple[Best | None, str]:
    observed = [row.episode for row in run.counted if row.episode]
    if not observed:
        return None, ""
    try:
        best = replayed(store, row).best() if replay else None
        if best is not None:
            return best, "posterior mean" if math.isfinite(best.sigma) else "best observed"
    except Exception:  # a method of another package, or settings of another version: the record itself still stands
        pass
    top = max(observed, key=lambda episode: episode.value)
    return Best(top.proposal_id, top.theta, math.nan, math.nan, top.value), "best observed"


def stored_method(row: dict[str, Any]) -> Any:
    """A fresh method as an experiment's own row describes it."""
    from crbo_ros.registry import make_method

    return make_method(row["method"], stored_space(row), row["theta_0"], seed=row["seed"], **row["config"])


def replayed(store: ExperimentStore, row: dict[str, Any]) -> Any:
    """The method as it stood when the store was last written."""
    method = stored_method(row)
    state, events = store.resume_point()
    if state is not None:
        method.restore(state)
    for event in events:
        apply(method, event.verb, event.arguments)
    return method
