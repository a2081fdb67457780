"""docs/API.md is what the declarations say, all of them, and so are the layouts of other people's tools."""

import argparse
from pathlib import Path

import pytest

from crbo_ros.commands import reference
from crbo_ros.errors import InvalidInput
from crbo_ros.ros import parameters
from crbo_ros.view import layouts

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CRBO_ROOT", str(ROOT))
    assert reference.run(argparse.Namespace(check=True)) == 0, "run ./crbo reference and commit what it writes"


def test_a_change_of_a_declaration_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CRBO_ROOT", str(ROOT))
    more = (*parameters.MONITOR, parameters.Parameter("new", 1.0, "something new"))
    monkeypatch.setattr(parameters, "MONITOR", more)
    assert reference.run(argparse.Namespace(check=True)) == 1
    assert "run ./crbo reference" in capsys.readouterr().err


def test_a_change_of_the_table_of_curves_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CRBO_ROOT", str(ROOT))
    monkeypatch.setattr(layouts, "PLOTS", layouts.PLOTS[1:])
    assert reference.run(argparse.Namespace(check=True)) == 1
    said = capsys.readouterr().err
    assert "config/plotjuggler_layout.xml is not up to date" in said
    assert "config/foxglove_layout.json is not up to date" in said


def test_a_curve_of_a_field_that_no_message_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no topic has optimizer_state\.retrun"):
        layouts.Curve("optimizer_state", "retrun", "return", "#000000")


def test_every_message_service_parameter_topic_and_field_is_in_it() -> None:
    text = reference.reference(ROOT)
    for file in [*ROOT.glob("msg/*.msg"), *ROOT.glob("srv/*.srv")]:
        assert f"### {file.stem}\n" in text
        for line in file.read_text().splitlines():
            if (code := line.split("#")[0].strip()) and code != "---":
                assert f"`{code.split(None, 1)[1].split('=')[0].strip()}`" in text
    for parameter in (*parameters.OPTIMIZER, *parameters.MONITOR, *parameters.RUNNER):
        assert f"| `{parameter.name}` |" in text
    for name in ("propose_policy", "check_rollout", "acknowledge_episode", "pause", "finish", "stop", "rearm"):
        assert f"| `{name}` |" in text
    for name in ("safety_heartbeat", "episode_return", "optimizer_state", "proposal", "safety_verdict"):
        assert f"| `{name}` | crbo_ros/msg/" in text
    assert "| `safety_heartbeat` | crbo_ros/msg/SafetyHeartbeat | safety_monitor | episode_runner | best effort" in text
