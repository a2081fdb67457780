"""The window's accept and rollback: for a run that is over and is kept here, and only when a person says yes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crbo_ros.view.values import OptimizerState


def state(word: str) -> OptimizerState:
    return OptimizerState("mine", "uid", "furuta", "crbo", word)


def test_it_asks_before_it_starts_the_command_and_waits_for_its_end(
    application: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.rqt.accepting import Accepting

    monkeypatch.setenv("CRBO_HOME", str(tmp_path))
    asked: list[str] = []
    started: list[list[str]] = []
    answers, running = [False, True], SimpleNamespace(poll=lambda: None)

    def ask(question: str) -> bool:
        asked.append(question)
        return answers.pop(0)

    def start(line: list[str], **_: Any) -> Any:
        started.append(line)
        return running

    buttons = Accepting(ask, start)
    buttons.show_state(state("finished"))
    assert not buttons.buttons["accept"].isEnabled()  # its folder is not here
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    buttons.show_state(state("running"))
    assert not buttons.buttons["accept"].isEnabled()
    buttons.show_state(state("finished"))
    assert buttons.buttons["accept"].isEnabled()
    buttons.click("accept")
    assert started == []
    assert "will move" in asked[0]
    buttons.click("accept")
    assert started[0][-2:] == ["accept", "mine"]
    buttons.show_state(state("finished"))
    assert not buttons.buttons["rollback"].isEnabled()  # one at a time
    running.poll = lambda: 0
    buttons.show_state(state("finished"))
    assert buttons.buttons["rollback"].isEnabled()
