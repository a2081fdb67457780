"""./crbo: sets up once, in order, recovers from what went wrong, and says what to do."""

import fcntl
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "crbo").exists(), reason="only in a clone")


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of ./crbo in a folder of its own; its steps are recorded in `steps` instead of run."""
    for name in ("crbo", "package.xml", "CMakeLists.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (
        "requirements",
        "msg",
        "srv",
        "cmake",
        "crbo_ros",
    ):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("__pycache__")
        ) if source.is_dir() else shutil.copy(source, target)
    for variable in ("ROS_DISTRO", "_ROS_WHEELS_BOOTSTRAP_COMPLETE"):
        monkeypatch.delenv(variable, raising=False)
    loader = importlib.machinery.SourceFileLoader("one_door", str(tmp_path / "crbo"))
    spec = importlib.util.spec_from_loader("one_door", loader)
    assert spec is not None
    module: Any = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.steps = []

    def call(command: Any, what: str, failed: Any) -> None:
        module.steps.append(what.split("] ")[-1])
        if "virtual environment" in what:
            (module.VENV / "bin").mkdir(parents=True)
            (module.VENV / "bin" / "python").touch()

    monkeypatch.setattr(module, "call", call)
    return module


def test_help_needs_no_set_up(door: Any) -> None:
    shown = subprocess.run([sys.executable, door.ROOT / "crbo", "--help"], capture_output=True, text=True, check=True)
    assert "improve a policy" in shown.stdout
    assert not door.VENV.exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "--help"], 0, "--experiments-dir"),
        (["bench", "faults", "--help"], 0, "--faults"),
        (["bench", "loop", "--help"], 0, "Random schedules"),  # (its options need NumPy)
        (["run", "furtua"], 2, "no task is called 'furtua'; did you mean 'furuta'?"),
        (["bench", "moon"], 2, "there is no bench 'moon'"),
        (["run", "furuta", "--epsodes", "3"], 2, "--epsodes"),
    ],
)
def test_a_commands_help_and_what_is_misspelt_need_no_set_up(door: Any, words: list[str], code: int, said: str) -> None:
    command = [sys.executable, "-S", door.ROOT / "crbo", *words]  # -S: no package is there
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    assert (shown.returncode, said in shown.stdout + shown.stderr) == (code, True), shown
    assert not door.VENV.exists()


def test_an_unknown_command_says_so_and_exits_with_2(door: Any) -> None:
    shown = subprocess.run([sys.executable, door.ROOT / "crbo", "fly"], capture_output=True, text=True, check=False)
    assert (shown.returncode, "'fly'" in shown.stderr) == (2, True)


def test_set_up_runs_once_torch_first_build_last_and_again_only_for_what_changed(door: Any) -> None:
    needs = ("core", "sim", "torch")
    door.prepare(needs, True)
    assert door.steps[:2] == ["virtual environment", "installing requirements/torch.txt"]
    assert door.steps[-1] == "building messages and services"
    assert len(door.steps) == 6
    door.steps.clear()
    door.prepare(needs, True)
    assert door.steps == []
    with open(door.ROOT / "msg" / "Proposal.msg", "a") as file:
        file.write("# changed\n")
    door.prepare(needs, True)
    assert door.steps == ["building messages and services"]
    (door.ROOT / "requirements" / "sim.txt").write_text("numba\n")
    door.prepare(("core",), False)  # does not need what changed
    door.prepare(needs, False)
    assert door.steps[1:] == ["installing requirements/sim.txt"]


def test_a_step_that_fails_is_tried_again_and_what_was_done_is_kept(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    good = door.call

    def bad(command: Any, what: str, failed: Any) -> None:
        good(command, what, failed)
        if "sim.txt" in what:
            raise door.SetupError(failed)

    monkeypatch.setattr(door, "call", bad)
    with pytest.raises(door.SetupError, match="network"):
        door.prepare(("core", "sim"), False)
    monkeypatch.setattr(door, "call", good)
    door.steps.clear()
    door.prepare(("core", "sim"), False)
    assert door.steps == ["installing requirements/sim.txt"]


def test_an_interrupted_build_starts_afresh(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    door.prepare(("core",), False)
    good = door.call

    def killed(command: Any, what: str, failed: Any) -> None:
        (door.WORK / "build").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(door, "call", killed)
    monkeypatch.setattr(door, "install", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        door.prepare(("core",), True)
    monkeypatch.setattr(door, "call", good)
    door.prepare(("core",), True)
    assert not (door.WORK / "build").exists()


@pytest.mark.parametrize(
    ("what", "said"), [("compiler", "no C\\+\\+ compiler"), ("disk", "GB are free"), ("headers", "headers are missing")]
)
def test_what_the_machine_lacks_is_said_and_leaves_nothing_behind(
    door: Any, monkeypatch: pytest.MonkeyPatch, what: str, said: str
) -> None:
    if what == "compiler":
        monkeypatch.setattr(door.shutil, "which", lambda name: None)
    elif what == "disk":
        monkeypatch.setattr(door, "FREE_GB", 1e9)
    else:
        monkeypatch.setattr(door.sysconfig, "get_path", lambda name: "/nowhere")
    with pytest.raises(door.SetupError, match=said):
        door.prepare(("core",), True)
    assert door.steps == []
    assert not door.STAMPS.exists()


def test_a_second_set_up_waits_for_the_first(door: Any) -> None:
    door.WORK.mkdir()
    with open(door.WORK / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, door.ROOT / "crbo", "inspect", "any"],
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        assert second.stderr is not None
        assert "waiting" in second.stderr.readline()
        assert second.poll() is None
        assert not door.VENV.exists()
        second.kill()
        second.wait()


def test_a_moved_folder_gets_a_new_environment(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    door.prepare(("core",), False)
    door.steps.clear()
    stamps = door.read_stamps()
    door.write_stamps({**stamps, "venv": "made elsewhere"})
    door.prepare(("core",), False)
    assert door.steps == ["virtual environment", "installing requirements/core.txt"]
