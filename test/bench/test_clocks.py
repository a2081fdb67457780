"""A clock that is stepped is that of one process, and the wall clock alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crbo_ros.bench.clocks import Clocks

READ = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("seconds", [-3600, 86400])
def test_a_step_moves_the_wall_clock_of_a_running_process_and_no_other_clock(tmp_path: Path, seconds: int) -> None:
    clocks = Clocks(tmp_path)
    if reason := clocks.build():
        pytest.skip(reason)
    with subprocess.Popen(
        [sys.executable, "-c", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env={**os.environ, **clocks.environment("it")},
    ) as process:  # fmt: skip
        to, of = process.stdin, process.stdout
        assert to is not None
        assert of is not None

        def read() -> list[float]:
            to.write("\n")
            return [float(word) for word in of.readline().split()]

        before = read()
        assert before[0] == pytest.approx(time.time(), abs=5.0)
        clocks.step("it", seconds)
        after = read()
        to.close()
    assert after[0] - before[0] == pytest.approx(seconds, abs=5.0)
    assert after[1] - before[1] == pytest.approx(0.0, abs=5.0)
    assert after[2] - before[2] == pytest.approx(0.0, abs=5.0)
    assert time.time() == pytest.approx(before[0], abs=60.0), "the machine's own clock was touched"


def test_without_a_compiler_there_is_a_sentence_and_processes_start_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    clocks = Clocks(tmp_path)
    assert clocks.build() == "there is no C compiler"
    assert clocks.environment("it") == {}


def test_a_slow_disk_is_that_of_one_process_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    if reason := clocks.build():
        pytest.skip(reason)
    sync = "import os, sys, time; f = open(sys.argv[1], 'w'); t = time.monotonic(); os.fsync(f.fileno()); "
    words = [sys.executable, "-c", sync + "print(time.monotonic() - t)", str(tmp_path / "x")]

    def seconds() -> float:
        return float(subprocess.check_output(words, env={**os.environ, **clocks.environment("it")}))

    clocks.environment("it")
    clocks.slow_down("it", 1500)
    assert seconds() >= 1.5
    clocks.slow_down("it", 0)
    assert seconds() < 1.5
