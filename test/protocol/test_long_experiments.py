"""Ten thousand episodes: what a proposal costs and writes is bounded, and nothing is lost by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench import long
from crbo_ros.core import CRBO, Space, TrialStatus, crbo
from crbo_ros.core.method import TrialRecord
from crbo_ros.core.trial import Proposal
from crbo_ros.protocol.ports import ACCEPTED
from crbo_ros.protocol.records import Episode
from crbo_ros.protocol.store import dump_state


def play(server: Any, count: int) -> list[Any]:
    thetas = []
    for _ in range(count):
        offer = server.propose("r", f"q{len(server.method.trials)}").offer
        ended = {5: "failed", 9: "vetoed"}.get(offer.id, "completed")
        episode = Episode(f"u{offer.id}", server.uid, offer.id, "r", offer.theta, ended, long.bowl(offer.theta))
        assert server.acknowledge(episode)[0] == ACCEPTED
        thetas.append(offer.theta)
    return thetas


def test_a_restart_with_a_window_carries_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crbo, "WINDOW", 12)
    monkeypatch.setattr(crbo, "NEWEST", 4)
    whole = play(long.open_experiment(tmp_path / "whole.sqlite", 3, 1), 24)
    parts = []
    for count in (8, 7, 1, 8):
        server = long.open_experiment(tmp_path / "parts.sqlite", 3, 1)
        parts += play(server, count)
        full = server.method.state()
        server.close()
    np.testing.assert_array_equal(whole, parts)
    store = long.open_experiment(tmp_path / "parts.sqlite", 3, 1)
    assert dump_state(store.method.state()) == dump_state(full)  # the tables give back what the method knew


def test_the_models_share_is_the_points_around_the_incumbent_and_the_newest() -> None:
    rng = np.random.default_rng(3)
    method = CRBO(Space(-np.ones(4), np.ones(4)), np.zeros(4), seed=1)
    for i in range(crbo.WINDOW + 40):
        theta = rng.uniform(-1.0, 1.0, 4)
        proposal = Proposal(i, theta, "acquisition")
        method.trials.append(TrialRecord(proposal, TrialStatus.COMPLETED, long.bowl(theta)))
        method._completed.append(i)
    method.ask()
    assert len(method.surrogate.y) <= crbo.WINDOW
    rows = method.rows()
    assert set(range(method.n - crbo.NEWEST, method.n)) <= set(rows)
    assert method.incumbent in rows
    best = method.best()
    assert best is not None
    assert best.id in rows


def test_ten_thousand_episodes_open_in_two_seconds_and_little_is_written_for_each(tmp_path: Path) -> None:
    path = tmp_path / "long.sqlite"
    long.fill(path, 10_000, 20, 1)
    begun = time.process_time()
    server = long.open_experiment(path, 20, 1)
    assert time.process_time() - begun < 2.0
    assert server.method.n == 10_000
    play(server, 1)
    (size,) = server.store.database.query("SELECT length(state) FROM snapshot")[0]
    assert size < 4000
    before = long.written()
    play(server, 6)
    assert not (long.written() - before) / 6 > 120_000  # proposal and result, whole pages of the journal
    server.close()
