"""The witness's account: a clean run has nothing to report, and each broken promise is called by its name."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from crbo_ros.bench.witness import PROMISES, Witness, account
from crbo_ros.core.trial import theta_hash

HASH = theta_hash(np.full(3, 0.4))


def write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A first try that was broken off after its end, before it was on disk; its repeat; and no more."""
    write(
        tmp_path / "monitor.sqlite",
        "CREATE TABLE approvals (verdict_id, theta_hash, runner)",
        f"INSERT INTO approvals VALUES ('v1', '{HASH}', '/r'), ('v2', '{HASH}', '/r')",
    )
    write(
        tmp_path / "r.sqlite",
        "CREATE TABLE executions (verdict_id, episode_uid, end)",
        "INSERT INTO executions VALUES ('v1', 'e1', 'begun')",
        "CREATE TABLE results (episode_uid, state)",
    )
    witness = Witness(folder=str(tmp_path), runner="r", seconds=0.0)
    witness.rollout([0.4] * 3, np.random.default_rng(0))
    write(
        tmp_path / "r.sqlite",
        "UPDATE executions SET end = 'interrupted'",
        "INSERT INTO executions VALUES ('v2', 'e2', 'begun')",
    )
    witness.rollout([0.4] * 3, np.random.default_rng(0))
    write(
        tmp_path / "r.sqlite",
        "UPDATE executions SET end = 'ended' WHERE episode_uid = 'e2'",
        "INSERT INTO results VALUES ('e2', 'done')",
    )
    write(
        tmp_path / "experiment.sqlite",
        "CREATE TABLE episodes (episode_uid, proposal_id, value)",
        "INSERT INTO episodes VALUES ('e2', 0, 0.7)",
    )
    return tmp_path


def broken(folder: Path) -> set[str]:
    return {promise for promise, found in account(folder, {"r": "/r"}).broken.items() if found}


def test_a_run_that_kept_its_promises_is_told_from_no_other(folder: Path) -> None:
    found = account(folder, {"r": "/r"})
    assert list(found.sentences) == []
    assert found.counts == {"episodes": 1, "starts": 2, "interrupted": 1, "ended": 1}


@pytest.mark.parametrize(
    ("file", "statement", "promise"),
    [
        ("experiment.sqlite", "DELETE FROM episodes", "lost"),
        ("r.sqlite", "UPDATE results SET state = 'refused'", "lost"),
        ("r.sqlite", "UPDATE executions SET end = 'ended' WHERE episode_uid = 'e1'", "lost"),
        ("experiment.sqlite", "INSERT INTO episodes VALUES ('e3', 0, 0.7)", "doubled"),
        ("experiment.sqlite", "INSERT INTO episodes VALUES ('e2', 1, 0.7)", "doubled"),
        ("monitor.sqlite", "DELETE FROM approvals WHERE verdict_id = 'v2'", "unapproved"),
        ("monitor.sqlite", "UPDATE approvals SET theta_hash = 'another'", "unapproved"),
        ("monitor.sqlite", "UPDATE approvals SET runner = '/another'", "unapproved"),
        ("r.sqlite", "DELETE FROM executions WHERE episode_uid = 'e1'", "begun without a record"),
        ("experiment.sqlite", "INSERT INTO episodes VALUES ('e3', 1, 0.7)", "begun without a record"),
    ],
)
def test_each_broken_promise_is_found(folder: Path, file: str, statement: str, promise: str) -> None:
    write(folder / file, statement)
    assert promise in broken(folder)
    assert broken(folder) <= set(PROMISES)


def test_a_start_that_was_not_on_record_at_that_moment_stays_one_whatever_is_written_later(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "r.ledger").read_text().splitlines()]
    assert [line["verdicts"] for line in lines] == [["v1"], ["v1"], ["v2"], ["v2"]]
    Witness(folder=str(folder), runner="r", seconds=0.0).rollout([0.4] * 3, np.random.default_rng(0))
    assert broken(folder) == {"begun without a record", "unapproved"}


def test_an_approval_is_good_for_one_start(folder: Path) -> None:
    with open(folder / "r.ledger", "a") as file:
        file.write((folder / "r.ledger").read_text().splitlines(keepends=True)[-2])
    assert broken(folder) == {"unapproved"}
