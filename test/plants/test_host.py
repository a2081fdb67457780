"""The plant host, in a process of its own: safe whatever hangs, and it says what it measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench.broken import Record
from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError, PlantFailed
from crbo_ros.plants.base import ResetStopped
from crbo_ros.plants.qube.device import QubeDevice, driving_voltage
from crbo_ros.plants.qube.hardware import PERIODS, QubeHardware
from crbo_ros.plants.qube.model import nominal, stand_in
from crbo_ros.plants.qube.simulation import QubeSim

BROKEN = "crbo_ros.bench.broken:BrokenQube"
PATIENT = 20.0  # s, for machines that stall
PARENT = """
import sys, time, numpy as np
from crbo_ros.plants.qube.hardware import QubeHardware
plant = QubeHardware("crbo_ros.bench.broken:BrokenQube", silence=20.0, board={board!r}, record={record!r})
plant.connect()
plant._host.arm()
print("moving", plant._host.pid, flush=True)
step = 0
while True:
    plant.step(np.array([2.5 * (-1) ** (step // 20)]))
    step += 1
"""


def until(condition: Callable[[], Any], timeout: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "card")


@pytest.fixture
def make(tmp_path: Path, record: Record) -> Iterator[Callable[..., QubeHardware]]:
    made: list[QubeHardware] = []

    def plant(fault: str = "", **options: Any) -> QubeHardware:
        options = {"silence": PATIENT, "board": str(tmp_path), "record": str(tmp_path / "card"), **options}
        made.append(QubeHardware(BROKEN, fault=fault, make_host=patient, **options))
        made[-1].connect()
        made[-1]._host.arm()
        return made[-1]

    yield plant
    for one in made:
        one.close()


def patient(*arguments: Any, **options: Any) -> Any:
    """The host with a deadline that a busy machine keeps; what it does at the deadline is what is tested."""
    from crbo_ros.plants.hosted import PlantHost

    return PlantHost(*arguments, **{**options, "patience": 2.0, "limits": {}})


def drive(plant: QubeHardware, steps: int = 150) -> None:
    for step in range(steps):
        plant.step(np.array([2.5 * (-1) ** (step // 20)]))


# -- in the process -------------------------------------------------------------------------------------


def test_a_command_goes_to_the_card_and_a_reading_comes_back(make: Any, record: Record) -> None:
    plant = make()
    drive(plant, 30)
    assert abs(record.voltage) == 2.5
    safe = plant.stop()
    assert safe.confirmed, safe
    assert "0 V written; the arm's movement" in safe.reason
    assert record.voltage == 0.0
    assert plant.stop() == safe  # known already
    assert plant.statistics()["lateness_max_ms"] > 0.0
    with pytest.raises(ResetStopped):
        plant.step(np.array([1.0]))  # not before it is armed anew


def test_without_a_fresh_command_the_host_goes_to_zero_by_itself(make: Any, record: Record) -> None:
    plant = make()
    drive(plant, 30)
    assert until(lambda: record.voltage == 0.0)  # this process, which holds the card's voltage, does nothing at all
    with pytest.raises(PlantFailed, match="no fresh command"):
        plant.step(np.array([1.0]))
    assert plant.stop().confirmed


def test_a_driver_that_hangs_with_the_interpreters_lock_is_killed_and_the_truth_is_said(make: Any) -> None:
    plant = make("hangs with the lock", silence=1.0)
    with pytest.raises(PlantFailed, match="silent"):
        drive(plant)
    safe = plant.stop()
    assert not safe.confirmed
    assert "BY HAND" in safe.reason
    assert not plant._host.alive


@pytest.mark.slow
def test_a_stop_from_another_thread_does_not_wait_for_the_control_loop(make: Any, record: Record) -> None:
    plant = make()
    drive(plant, 10)
    threading.Thread(target=plant.cut).start()
    with pytest.raises(ResetStopped):
        drive(plant, 10_000)
    assert record.voltage == 0.0
    assert plant.stop().confirmed


@pytest.mark.slow
def test_a_stop_that_hangs_is_not_confirmed_and_does_not_hang_us(make: Any) -> None:
    plant = make("stop hangs", silence=1.0)
    drive(plant, 100)
    safe = plant.stop()
    assert (safe.confirmed, "no answer to a stop" in safe.reason) == (False, True)


def test_one_qube_has_one_runner(make: Any, tmp_path: Path) -> None:
    make()
    code = "from crbo_ros.plants.qube.hardware import QubeHardware\n"
    code += f"QubeHardware({BROKEN!r}, board={str(tmp_path)!r}, record='').connect()"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"process {os.getpid()} on this machine is at work on the same target" in second.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_parent_that_is_killed_or_frozen_leaves_zero_volts(number: Any, tmp_path: Path, record: Record) -> None:
    code = PARENT.format(board=str(tmp_path), record=str(tmp_path / "card"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        assert words[0] == "moving"
        assert until(lambda: len(record) > 30)
        process.send_signal(number)
        assert until(lambda: record.voltage == 0.0)
        time.sleep(0.1)
        assert record.voltage == 0.0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert until(lambda: not Path(f"/proc/{words[1]}").exists())  # the host has gone too


# -- what the host's job does, without a process --------------------------------------------------------


def device(record: Record, tmp_path: Path, fault: str) -> QubeDevice:
    options = {"record": str(tmp_path / "card"), "fault": fault, "after": 20}
    return QubeDevice(
        driver="crbo_ros.bench.broken:BrokenQube", options=options, rate=250.0, max_voltage=13.0, say=print,
        sleep=lambda seconds: None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raises", "unplugged"),
        ("nan", "four finite numbers"),
        ("wrong shape", "four finite numbers"),
        ("old readings", "nothing moved"),
        ("calls sys.exit", "3"),
    ],
)
def test_a_driver_that_breaks_is_found(record: Record, tmp_path: Path, fault: str, words: str) -> None:
    job = device(record, tmp_path, fault)
    with pytest.raises((PlantError, OSError, SystemExit), match=words):  # noqa: PT012
        for step in range(300):
            job.command([2.5 * (-1) ** (step // 20)])


def test_an_amplifier_that_does_not_obey_is_not_called_safe(record: Record, tmp_path: Path) -> None:
    job = device(record, tmp_path, "amplifier stuck")
    for _ in range(25):
        job.command([2.5])
    safe = job.make_safe(last=True)
    assert (safe.confirmed, "still drives it" in safe.reason) == (False, True), safe


def test_encoders_that_stand_still_vouch_for_nothing(record: Record, tmp_path: Path) -> None:
    job = device(record, tmp_path, "old readings")
    with pytest.raises(PlantError, match="nothing moved"):  # noqa: PT012
        for _ in range(300):
            job.command([2.5])
    safe = job.make_safe(last=True)
    assert (safe.confirmed, "may be dead" in safe.reason, record.voltage) == (False, True, 0.0)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_encoders_that_die_just_before_a_stop_vouch_for_nothing(record: Record, tmp_path: Path, steps: int) -> None:
    job = device(record, tmp_path, "old readings")
    for step in range(18 + steps):  # (the driver's 20th exchange is the first with an old reading)
        job.command([2.5 * (-1) ** (step // 10)])
    safe = job.make_safe(last=True)
    assert (safe.confirmed, "may be dead" in safe.reason, record.voltage) == (False, True, 0.0), safe
    assert not job.make_safe(last=False).confirmed, "asked again, it has not become true"


def test_a_standstill_that_nobody_drove_is_confirmed(record: Record, tmp_path: Path) -> None:
    job = device(record, tmp_path, "")
    assert job.make_safe(last=False).confirmed  # as it was opened
    for _ in range(10):
        job.command([0.0])
    assert job.make_safe(last=False).confirmed


def test_zero_volts_come_before_any_reading(record: Record, tmp_path: Path) -> None:
    job = device(record, tmp_path, "raises")
    with pytest.raises(OSError, match="unplugged"):  # noqa: PT012
        for _ in range(30):
            job.command([2.5])
    assert record.voltage == 2.5
    with pytest.raises(OSError, match="unplugged"):
        job.make_safe(last=True)  # (the host says UNCONFIRMED)
    assert record.voltage == 0.0


@pytest.mark.parametrize("parameters", [nominal(), stand_in()])
def test_the_arm_tells_two_and_a_half_volts_from_none(parameters: Any) -> None:
    rng = np.random.default_rng(1)
    for trial in range(100):
        found = {}
        upright = trial % 2 * np.pi
        state = np.array([rng.uniform(-1, 1), upright + rng.uniform(-0.6, 0.6), rng.uniform(-8, 8), rng.uniform(-8, 8)])
        for voltage in (0.0, 2.5, -2.5):
            sim = QubeSim(parameters._replace(max_voltage=15.0, latency=0.0, encoder_counts=2048.0))
            sim.reset_to(state.copy())
            angles = np.array([np.array(sim.step(np.array([voltage]))[:2]) for _ in range(30)])
            found[voltage] = driving_voltage(angles, 250.0)
        assert abs(found[0.0]) < 0.85 < min(found[2.5], -found[-2.5]), (trial, found)


def test_it_is_three_periods() -> None:
    assert PERIODS == 3
    assert str(Safe(False, "nobody looked")) == "UNCONFIRMED: nobody looked"
