"""docs/API.md is what the declarations say, all of them."""

import argparse
from pathlib import Path

import pytest

from crbo_ros.commands import reference
from crbo_ros.ros import parameters

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CRBO_ROOT", str(ROOT))
    assert reference.run(argparse.Namespace(check=True)) == 0, "run ./crbo reference and commit docs/API.md"


def test_a_change_of_a_declaration_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CRBO_ROOT", str(ROOT))
    more = (*parameters.MONITOR, parameters.Parameter("new", 1.0, "something new"))
    monkeypatch.setattr(parameters, "MONITOR", more)
    assert reference.run(argparse.Namespace(check=True)) == 1
    assert "run ./crbo reference" in capsys.readouterr().err


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
