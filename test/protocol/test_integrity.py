"""Records that know when they are damaged: nothing changed behind a store's back passes; repair says what it does."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crbo_ros import cli
from crbo_ros.bench import flips
from crbo_ros.errors import StoreError
from crbo_ros.protocol import chain, store
from crbo_ros.protocol.chain import Head
from crbo_ros.protocol.database import Database
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.repair import repair
from crbo_ros.protocol.salvage import EXPERIMENT, schema_of, verify
from crbo_ros.protocol.spool import Spool
from crbo_ros.protocol.store import ExperimentStore
from crbo_ros.view.record import stored_method


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("reference")
    flips.make_reference(folder, 5)
    shutil.copytree(folder / "ended", folder / "look")
    return folder, flips.content(folder / "look")


@pytest.fixture
def folder(reference: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    shutil.copytree(reference[0] / "ended", tmp_path / "e")
    return tmp_path / "e"


@contextlib.contextmanager
def behind_its_back(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def change(path: Path, sql: str) -> None:
    with behind_its_back(path) as connection:
        connection.execute(sql)


def test_no_flipped_bit_passes_silently_and_none_gives_a_traceback() -> None:
    for name, fate, why, _ in flips.campaign(30, seed=20, episodes=3, repairs=False):
        assert fate in (flips.REPORTED, flips.HARMLESS), f"{name}: {fate} {why}"


@pytest.mark.parametrize("name", ["experiment", "monitor", "runner"])
def test_every_value_of_every_row_is_covered(folder: Path, name: str) -> None:
    path = folder / f"{name}.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        schema = schema_of(path)[0]
        assert chain.damages(connection, schema) == []
        connection.execute("PRAGMA ignore_check_constraints=ON")
        for table in [*chain.tables(connection), "chain"]:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for column in columns if connection.execute(f"SELECT 1 FROM {table}").fetchone() else ():
                connection.execute("SAVEPOINT s")
                connection.execute(f"UPDATE {table} SET {column} = -7 - coalesce(length({column}), 0) WHERE rowid = "
                                   f"(SELECT max(rowid) FROM {table})")  # fmt: skip
                assert chain.damages(connection, schema), f"{table}.{column}"
                connection.execute("ROLLBACK TO s")
            for sql in (f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table})",):
                connection.execute("SAVEPOINT s")
                if connection.execute(sql).rowcount:
                    assert chain.damages(connection, schema), sql
                connection.execute("ROLLBACK TO s")


def test_checksums_are_those_of_the_files_that_are_out_there() -> None:
    assert chain.checksum("t", [1, 2.5, b"x", None, "a"]) == "6558ae2a3bacfe0ad12537c8620ecc7c"
    assert chain.link("b", 3, "[]") == "cc3633cfe53a66f3e17160fd72640beee281163dc1a46eaae6ccfd5860d41411"
    rows: list[list[Any]] = [[1], [1.0], ["1"], [b"1"], [None], ["None"], [1, 1], [11]]
    assert len({chain.checksum("t", row) for row in rows}) == len(rows), "each value by its type and its length"


def test_a_chain_whose_newest_entry_was_changed_or_moved_shows(folder: Path) -> None:
    path = folder / "runner.sqlite"
    newest = "number = (SELECT max(number) FROM chain)"
    for sql in (
        f"UPDATE chain SET digest = '0' WHERE {newest}",
        f"UPDATE chain SET number = number + 5 WHERE {newest}",
    ):
        shutil.copy(path, folder / "copy.sqlite")
        change(folder / "copy.sqlite", sql)
        with contextlib.closing(sqlite3.connect(folder / "copy.sqlite")) as connection:
            found = chain.damages(connection, schema_of(path)[0])
        assert found[0].startswith("entry ")
        assert found[0].endswith("of the chain does not follow from those before it")


def test_an_added_row_and_a_changed_declaration_show(folder: Path) -> None:
    change(folder / "runner.sqlite", "INSERT INTO heads VALUES ('x', 1, 'y')")
    with pytest.raises(StoreError, match="never written"):
        Spool(folder / "runner.sqlite")
    with behind_its_back(folder / "experiment.sqlite") as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'pending', 'qending')")
    with pytest.raises(StoreError, match="declared"):
        ExperimentStore(folder / "experiment.sqlite")


def test_a_store_that_lost_its_newest_rows_is_found_out_when_it_meets_somebody_who_saw_them(tmp_path: Path) -> None:
    with flips.Stores(tmp_path / "e") as run:
        for _ in range(2):
            run.episode()
        shutil.copytree(tmp_path / "e", tmp_path / "backup")
        run.episode()
    for name in ("experiment", "monitor", "runner"):
        work = tmp_path / name
        shutil.copytree(tmp_path / "e", work)
        for suffix in ("", "-wal"):
            if (tmp_path / "backup" / f"{name}.sqlite{suffix}").exists():
                shutil.copy(tmp_path / "backup" / f"{name}.sqlite{suffix}", work / f"{name}.sqlite{suffix}")
        with pytest.raises(StoreError, match="transactions are gone"):
            flips.Stores(work)
        assert [f.path.name for f in verify(work) if f.wrong] == [f"{name}.sqlite"]
        assert cli.main(["inspect", str(work), "--verify"]) == 1
        told, whole = repair(work, stored_method)
        assert whole, told
        if name == "experiment":
            with flips.Stores(work) as run:
                assert [e.proposal_id for e in run.server.store.episodes()] == [0, 1, 2]


def test_a_head_of_another_history_is_refused_and_a_strangers_is_not_kept_for_ever(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.sqlite")
    own = spool.database.heads[0]
    with pytest.raises(StoreError, match="not the one that somebody has seen"):
        spool.database.meet([Head(own.store, own.count, "0" * 64)], "somebody")
    spool.database.meet([Head("", 5, "x")], "somebody without a store")
    assert spool.database.heads == [own]
    spool.database.meet([Head(f"s{i}", i, "x") for i in range(500)], "a stranger")
    assert len(spool.database.heads) <= 8
    spool.new_request()
    assert len(spool.database.heads) == 8, "what was written is still known"
    spool.close()
    assert len(Spool(tmp_path / "s.sqlite").database.heads) == 8


def test_the_log_is_empty_after_each_transaction_so_that_cutting_it_loses_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.sqlite")
    for _ in range(3):
        request = spool.new_request()
        log = tmp_path / "s.sqlite-wal"
        assert not log.exists() or log.stat().st_size == 0
    shutil.copy(tmp_path / "s.sqlite", tmp_path / "copy.sqlite")
    assert Spool(tmp_path / "copy.sqlite").request_id() == request


def test_an_empty_file_is_a_damaged_one_and_a_reader_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "experiment.sqlite"
    path.touch()
    for owner in (False, True):
        with pytest.raises(StoreError, match="empty"):
            ExperimentStore(path, owner=owner)
    assert path.read_bytes() == b""
    with pytest.raises(StoreError):
        Database(tmp_path / "missing.sqlite", store.SCHEMA, store.SCHEMA_VERSION)
    assert not (tmp_path / "missing.sqlite").exists()


@pytest.mark.parametrize(
    ("name", "sql", "said"),
    [
        ("experiment", "UPDATE proposals SET mean = 7 WHERE id = 2", "proposal 2 was made again, bit for bit"),
        ("experiment", "UPDATE episodes SET value = 3 WHERE proposal_id = 2", "came from a spool"),
        ("experiment", "DELETE FROM snapshot", ""),
        ("experiment", "DELETE FROM events WHERE sequence = 2", ""),
        ("experiment", "DELETE FROM verdicts WHERE rowid = 2", "LOST: verdicts row 2"),
        ("experiment", "DELETE FROM chain WHERE number = 5", "LOST: verdicts row 2"),
        ("monitor", "UPDATE returns SET value = 9", "returns came from the spools"),
        ("monitor", "DELETE FROM settings_log", "LOST: settings_log row 1"),
        ("runner", "UPDATE results SET episode = '{}'", "results came from the optimizer's store"),
        ("runner", "DELETE FROM request", "LOST: request"),
    ],
)
def test_repair_brings_back_what_others_know_and_says_what_is_lost(
    folder: Path, reference: tuple[Path, dict[str, Any]], name: str, sql: str, said: str
) -> None:
    change(folder / f"{name}.sqlite", sql)
    with pytest.raises(StoreError, match="damaged"):
        flips.Stores(folder)
    told, whole = repair(folder, stored_method)
    assert whole
    assert said in "\n".join(told)
    assert (folder / f"{name}.sqlite.damaged-1").exists()
    with contextlib.closing(SafetyMonitor(flips.PROBLEM, folder / "monitor.sqlite")) as monitor:
        assert bool(monitor.stopped) == (name == "monitor"), "a repaired monitor waits for a person"
        monitor.rearm()
    found = flips.content(folder)
    lost = {"judged"} if "settings_log" in sql else set()  # a threshold that was set at run time is said to be lost
    for what in {"episodes", "next", "best", "returns", "judged"} - lost:
        assert found[what] == reference[1][what], what


@pytest.mark.parametrize("name", ["experiment", "monitor", "runner"])
def test_a_file_that_does_not_know_its_own_tables_any_more_is_brought_back(
    folder: Path, reference: tuple[Path, dict[str, Any]], name: str
) -> None:
    path = folder / f"{name}.sqlite"
    data = path.read_bytes()
    for word, wrong in (
        (b"CREATE TABLE", b"CRE!TE TABLE"),
        (b"CREATE", b"\xff\xff\xff\xff\xff\xff"),
        (data[100:108], b"\0" * 8),
    ):
        path.write_bytes(data.replace(word, wrong, 1))
        with pytest.raises(StoreError, match="repair"):
            flips.Stores(folder)
        told, whole = repair(folder, stored_method)
        assert whole, told
        assert "LOST" not in "\n".join(told)
        with contextlib.closing(SafetyMonitor(flips.PROBLEM, folder / "monitor.sqlite")) as monitor:
            monitor.rearm()
        found = flips.content(folder)
        assert found["episodes"] == reference[1]["episodes"]
        assert found["next"] == reference[1]["next"]


def test_results_that_no_store_has_any_more_come_from_a_bag(
    folder: Path, reference: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mcap_ros2")
    bag = tmp_path / "x.mcap"
    assert cli.main(["export", str(folder), "--mcap", "--output", str(bag), "--namespace", "lab"]) == 0
    (folder / "runner.sqlite").unlink()
    change(folder / EXPERIMENT, "UPDATE episodes SET value = 3 WHERE proposal_id = 2")
    shutil.copytree(folder, tmp_path / "without")
    assert cli.main(["repair", str(tmp_path / "without")]) == 0
    assert "LOST: the return of proposal 2" in capsys.readouterr().out
    assert cli.main(["repair", str(folder), "--bag", str(bag)]) == 0
    said = capsys.readouterr().out
    assert "the result of proposal 2 (completed) came from a bag, unverified" in said
    assert "LOST" not in said
    with contextlib.closing(ExperimentStore(folder / EXPERIMENT)) as opened:
        found = {e.proposal_id: e.value for e in opened.episodes()}
    assert found == {e["proposal_id"]: e["value"] for e in reference[1]["episodes"]}


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_what_is_no_bag_is_refused_with_a_sentence(
    folder: Path, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.mcap").write_bytes(content)
    assert cli.main(["repair", str(folder), "--bag", str(tmp_path / "x.mcap")]) == 1
    assert "x.mcap: is " in capsys.readouterr().err


def test_a_whole_store_of_the_former_version_is_refused_with_what_to_do_and_taken_over_by_repair(folder: Path) -> None:
    with behind_its_back(folder / "experiment.sqlite") as connection:
        for statement in ("DROP TABLE chain", "DROP TABLE heads", "PRAGMA user_version=2"):
            connection.execute(statement)
    with pytest.raises(StoreError, match=r"crbo repair .* takes it over"):
        ExperimentStore(folder / "experiment.sqlite")
    assert repair(folder, stored_method)[1]
    with flips.Stores(folder) as run:
        assert len(run.server.store.episodes()) == 5


def test_best_json_of_which_a_digit_was_changed_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "best.json"
    assert cli.main(["inspect", str(folder), "--verify"]) == 0
    text = path.read_text()
    path.write_text(text.replace("0.", "1.", 1))
    assert cli.main(["inspect", str(folder), "--verify"]) == 1
    assert "digest" in capsys.readouterr().out
    assert cli.main(["rollout", "furuta", "--theta", str(path)]) == 1
    assert "damaged or changed by hand" in capsys.readouterr().err
    path.write_text(text)
    assert cli.main(["rollout", "furuta", "--theta", str(path)]) == 1
    assert "a policy of task 'flips', not of 'furuta'" in capsys.readouterr().err


def test_a_store_that_was_closed_has_let_go_of_its_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.sqlite")
    spool.close()
    with pytest.raises(sqlite3.ProgrammingError):
        spool.database._connection.execute("SELECT 1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.lock", "s.sqlite"], "the log went with it"


def test_an_experiments_folder_is_its_users_alone(tmp_path: Path) -> None:
    Spool(tmp_path / "new" / "s.sqlite").close()
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
