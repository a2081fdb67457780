"""./crbo: sets up once, in order, recovers from what went wrong, and says what to do."""

import fcntl
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "messages and services"
pytestmark = pytest.mark.skipif(not (ROOT / "crbo").exists(), reason="only in a clone")


def load(folder: Path) -> Any:
    """The file ./crbo of a folder as a module."""
    loader = importlib.machinery.SourceFileLoader("one_door", str(folder / "crbo"))
    spec = importlib.util.spec_from_loader("one_door", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


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
    module = load(tmp_path)
    module.steps = []

    def call(command: Any, what: str, failed: Any) -> None:
        module.steps.append(what)
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


def test_set_up_runs_once_and_again_only_for_what_changed(door: Any) -> None:
    needs = ("core", "sim", "torch")
    door.prepare(needs, True)
    made_with = ["virtual environment", "requirements/core.txt", "requirements/ros.txt"]  # torch before what needs it
    assert door.steps[:3] == made_with
    assert [step for step in door.steps[3:] if step != BUILD] == ["requirements/torch.txt", "requirements/sim.txt"]
    assert door.steps.count(BUILD) == 1
    door.steps.clear()
    door.prepare(needs, True)
    assert door.steps == []
    with open(door.ROOT / "msg" / "Proposal.msg", "a") as file:
        file.write("# changed\n")
    door.prepare(needs, True)
    assert door.steps == [BUILD]
    (door.ROOT / "requirements" / "sim.txt").write_text("numba\n")
    door.prepare(("core",), False)  # does not need what changed
    door.prepare(needs, False)
    assert door.steps[1:] == ["requirements/sim.txt"]


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
    assert door.steps == ["requirements/sim.txt"]


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
    assert door.steps == ["virtual environment", "requirements/core.txt"]


def test_the_build_waits_for_what_it_is_made_with_and_runs_beside_the_rest(
    door: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=10.0)  # (the build meets sim; alone, either would break the barrier)
    good = door.call

    def call(command: Any, what: str, failed: Any) -> None:
        good(command, what, failed)
        if what in (BUILD, "requirements/sim.txt"):
            together.wait()

    monkeypatch.setattr(door, "call", call)
    door.prepare(("core", "sim"), True)
    assert set(door.steps[3:]) == {BUILD, "requirements/sim.txt"}
    assert not door.missing(door.wanted_stamps(("core", "sim"), True), door.read_stamps())


def test_a_build_that_fails_beside_pip_is_told_and_pips_work_is_kept(
    door: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = door.call

    def call(command: Any, what: str, failed: Any) -> None:
        good(command, what, failed)
        if what == BUILD:
            raise door.SetupError(failed)

    monkeypatch.setattr(door, "call", call)
    with pytest.raises(door.SetupError, match="the build failed"):
        door.prepare(("core", "sim"), True)
    assert door.missing(door.wanted_stamps(("core", "sim"), True), door.read_stamps()) == ["build"]


def test_a_build_that_pip_disturbed_is_made_again_when_pip_has_ended(
    door: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    good, builds = door.call, []

    def call(command: Any, what: str, failed: Any) -> None:
        good(command, what, failed)
        if what == BUILD:
            builds.append(what)
            if len(builds) == 1:
                raise door.SetupError("No module named 'setuptools.command.egg_info'")

    monkeypatch.setattr(door, "call", call)
    door.prepare(("core", "sim"), True)
    assert len(builds) == 2
    assert "once more" in capfd.readouterr().err
    assert not door.missing(door.wanted_stamps(("core", "sim"), True), door.read_stamps())


def test_only_slow_tests_bring_torch_and_set_up_says_what_that_costs(
    door: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    from crbo_ros import cli

    assert "torch" not in cli.needs_of(["test"])[0] + cli.needs_of(["run", "furuta"])[0]
    assert "torch" in cli.needs_of(["test", "--slow"])[0]
    for file in (ROOT / "requirements").glob("*.txt"):
        names = re.findall(r"(?m)^(torch|gpytorch|botorch|stable-baselines3)\b", file.read_text())
        assert not names or file.stem in ("torch", "train"), f"{file.name} would bring torch"
    door.prepare(("core", "torch"), False)
    assert "2.7 GB" in capfd.readouterr().err


def test_without_a_terminal_every_step_is_told_once_with_what_is_left(
    door: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    door.WORK.mkdir()
    real = load(door.ROOT)
    real.TO_COME[:] = ["pip sim", "build"]
    real.call(["true"], "requirements/core.txt", "failed")
    assert capfd.readouterr().err == "crbo: requirements/core.txt done in 0 s; still to come: sim, build\n"


def test_fix_brings_back_damaged_packages_and_builds_messages_that_do_not_load(
    door: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    needs = ("core", "sim")
    door.prepare(needs, True)
    site = door.site_packages()
    for name, size in (("good", 5), ("torn", 9), ("gone", 5)):
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"{name}.py,,{size}\n")
        (site / f"{name}.py").write_text("x = 1")
    (site / "gone.py").unlink()
    monkeypatch.setattr(door, "works", lambda code: "rclpy" not in code)
    door.steps.clear()
    door.prepare(needs, True, fix=True)
    assert "damaged: torn==1.0, gone==1.0" in capfd.readouterr().err.replace(
        "gone==1.0, torn==1.0", "torn==1.0, gone==1.0"
    )
    assert door.steps[0] == "2 packages again"
    assert {BUILD, "requirements/sim.txt", "requirements/core.txt"} <= set(door.steps)
    assert "virtual environment" not in door.steps
    monkeypatch.setattr(door, "works", lambda code: False)
    door.steps.clear()
    door.prepare(needs, True, fix=True)
    assert door.steps[0] == "virtual environment"


def test_wheels_are_fetched_into_a_folder_and_installed_from_it_alone(
    door: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from crbo_ros import cli
    from crbo_ros.commands import setup

    commands = []
    good = door.call

    def call(command: Any, what: str, failed: Any) -> None:
        commands.append((command, os.environ.get("PIP_NO_INDEX")))
        good(command, what, failed)

    monkeypatch.setattr(door, "call", call)
    monkeypatch.setenv("PIP_NO_INDEX", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    parser = cli.parser_of(setup, ["setup"])
    assert door.set_up(parser, ["rollout", "--download", str(tmp_path / "wheels")]) == 0
    assert door.steps == ["virtual environment", "wheels for core, sim"]
    assert commands[-1][0][3] == "wheel", "built: sources would need a network again"
    assert door.set_up(parser, ["rollout", "--wheels", str(tmp_path / "wheels")]) == 0
    assert door.steps[2:] == ["requirements/core.txt", "requirements/sim.txt"]
    assert commands[-1][1] == "1"
    assert os.environ["PIP_FIND_LINKS"] == str(tmp_path / "wheels")


def test_an_installed_command_speaks_of_itself_and_a_clone_of_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    from crbo_ros import cli
    from crbo_ros.commands import repair
    from crbo_ros.errors import InvalidInput, explain

    for root, own in (("", "crbo repair furuta"), ("/somewhere", "./crbo repair furuta")):
        monkeypatch.setenv("CRBO_ROOT", root)
        assert f" {own}" in f" {explain(InvalidInput('./crbo repair furuta mends it'))}"
        assert f" {own}" in cli.parser_of(repair, ["repair"]).format_help()


def test_help_shows_every_command_as_it_is_typed_in_a_clone_and_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from importlib import import_module

    from crbo_ros import cli

    bare = re.compile(rf"(?<![./\w])crbo (?:{'|'.join(cli.COMMANDS)})\b")
    for name, command in cli.COMMANDS.items():
        if "{}" not in command.module:
            module = import_module(command.module)
            monkeypatch.setenv("CRBO_ROOT", "/somewhere")
            assert not bare.search(module.__doc__ or ""), f"{name}: write ./crbo, of which as_called makes the rest"
            monkeypatch.setenv("CRBO_ROOT", "")
            monkeypatch.setenv("AMENT_PREFIX_PATH", "")
            assert "./crbo" not in cli.parser_of(module, [name]).description, name  # type: ignore[operator]


def test_an_installed_command_says_how_pip_brings_what_a_clone_brings_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from crbo_ros.bringup import graph
    from crbo_ros.commands import doctor
    from crbo_ros.errors import InvalidInput, explain

    monkeypatch.setenv("CRBO_ROOT", "")
    assert doctor.advice("./crbo train NAME installs it") == 'pip install "crbo_ros[train]"'
    monkeypatch.setattr(graph, "config_places", lambda: [tmp_path])
    with pytest.raises(InvalidInput) as raised:
        graph.config_file("furuta")
    assert "pip installs the library alone" in explain(raised.value)
    monkeypatch.setenv("CRBO_ROOT", "/somewhere")
    assert doctor.advice("./crbo train NAME installs it") == "./crbo train NAME installs it"
