"""What `crbo run` prints: each thing once, and advice that this user can type."""

import pytest

from crbo_ros.commands.run import Screen
from crbo_ros.errors import as_called


def test_without_a_terminal_the_last_status_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.status("starting ...")
    screen.say("a log line")
    screen.close()
    assert capsys.readouterr().out == "starting ...\na log line\n"
    screen = Screen()
    screen.status("starting ...")
    screen.status("2/2")
    screen.close()
    assert capsys.readouterr().out == "starting ...\n2/2\n"


@pytest.mark.parametrize(
    ("root", "workspace", "on_path", "typed"),
    [
        ("/clone", "", False, "./crbo accept e"),
        ("", "/ws/install", False, "ros2 run crbo_ros crbo accept e"),
        ("", "/ws/install", True, "crbo accept e"),
        ("", "", True, "crbo accept e"),
    ],
)
def test_advice_is_what_the_user_can_type(
    root: str, workspace: str, on_path: bool, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRBO_ROOT", root)
    monkeypatch.setenv("AMENT_PREFIX_PATH", workspace)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if on_path else None)
    assert as_called("./crbo accept e") == typed
