"""`crbo doctor --plant`: nothing moves without a yes, and what was found is written down."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from crbo_ros.commands import doctor_plant
from crbo_ros.errors import InvalidInput
from crbo_ros.plants.hosted import PlantHost
from crbo_ros.plants.qube.hardware import QubeHardware


def test_an_unknown_plant_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="qube_hardware"):
        doctor_plant.find_task("cube")
    assert doctor_plant.find_task("qube_pal") == "furuta"


def test_nothing_is_connected_without_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert doctor_plant.try_plant("qube_pal", {}, ask=lambda question: False, say=said.append) == 1
    assert [line.split(":")[0] for line in said] == ["limits"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Qube's driver on a card that holds its last voltage, as the task's plant."""
    monkeypatch.setenv("CRBO_STATE", str(tmp_path))
    plant = QubeHardware(
        "crbo_ros.bench.broken:BrokenQube",
        record=str(tmp_path / "card"),
        board=str(tmp_path),
        silence=20.0,
        after=10**6,
        make_host=lambda *a, **k: PlantHost(*a, **{**k, "patience": 5.0, "limits": {}}),  # for machines that stall
    )
    task = SimpleNamespace(
        hardware=True, plant=plant, connect=plant.connect, stop=plant.stop, close=plant.close,
        limits_in_words=plant.limits_in_words,
    )  # fmt: skip
    monkeypatch.setattr("crbo_ros.registry.make_task", lambda *_, **__: task)


@pytest.mark.slow
def test_every_way_to_zero_volts_is_tried_and_written_down(fake: None, tmp_path: Path) -> None:
    said: list[str] = []
    doctor_plant.try_plant("qube_pal", {}, ask=lambda question: True, say=said.append)
    assert said[0] == "limits: up to 3 V, 13 V in the swing-up; 0 V after 12 ms without a command"
    found = json.loads((tmp_path / "doctor-qube_pal.json").read_text())["found"]
    trials = {row["trial"]: row for row in found}
    assert {"connected, at rest", "stop", "runner silent", "host frozen, then back"} <= set(trials)
    assert trials["stop"]["confirmed"]
    assert trials["the card without a process"]["reason"] == "goes to 0 V"


@pytest.mark.slow
def test_a_card_that_was_seen_to_hold_its_voltage_is_not_well_and_a_trial_not_made_is_not_called_safe(
    fake: None, tmp_path: Path
) -> None:
    said: list[str] = []

    def ask(question: str) -> bool:
        return "connect" in question or "killed" in question  # and then: no, it turns on

    assert doctor_plant.try_plant("qube_pal", {}, ask=ask, say=said.append) == 1
    assert "NOT WELL: the card without a process (HOLDS its voltage)" in said[-1]
    assert "not tried: stop, runner silent, host frozen" in said[-1]
    assert "somebody stays at the switch" in said[-1]
