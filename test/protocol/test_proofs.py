"""Who may speak: what loosens something needs a proof that is good for one command, once."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from crbo_ros.protocol.proofs import KEY, Challenges, find_key, forget_key, keep_key, prove


def test_a_command_is_accepted_with_its_proof_once_and_no_other_command_with_it() -> None:
    challenges = Challenges("secret")
    assert "needs a proof" in challenges.check("", "", "rearm", "", "me")
    challenge = challenges.give()
    assert "needs a proof" in challenges.check(challenge, "", "rearm", "", "me")
    assert "needs a proof" in challenges.check("", "x", "rearm", "", "me")
    proof = prove("secret", challenge, "rearm", "", "me")
    for wrong in (("set", "", "me"), ("rearm", "{}", "me"), ("rearm", "", "you")):
        assert "proof" in challenges.check(challenge, proof, *wrong)
    assert "proof" in challenges.check(challenge, prove("guess", challenge, "rearm", "", "me"), "rearm", "", "me")
    assert challenges.check(challenge, proof, "rearm", "", "me") == ""
    assert "used before" in challenges.check(challenge, proof, "rearm", "", "me"), "a replay"
    assert "not given" in challenges.check("made up", prove("secret", "made up", "rearm", "", "me"), "rearm", "", "me")


def test_challenges_are_bounded_and_without_a_key_everybody_may() -> None:
    challenges = Challenges("secret")
    old = challenges.give()
    for _ in range(100):
        challenges.give()
    assert "not given lately" in challenges.check(old, prove("secret", old, "rearm", "", "me"), "rearm", "", "me")
    assert Challenges("").check("", "", "rearm", "", "anybody") == ""


def test_the_key_is_kept_for_its_user_alone_and_found_by_the_experiments_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiments" / "e"
    folder.mkdir(parents=True)
    keep_key(tmp_path, "mine")
    monkeypatch.chdir(tmp_path)
    (folder / "operator.key").symlink_to(tmp_path / "elsewhere")  # somebody else's idea of where it should go
    keep_key(folder, "secret")
    assert stat.S_IMODE((folder / "operator.key").lstat().st_mode) == 0o600
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.setenv("CRBO_HOME", str(tmp_path / "experiments"))
    monkeypatch.delenv(KEY, raising=False)
    assert find_key("e") == "secret"
    assert find_key("another") == find_key("") == ""
    forget_key(folder, "that of another graph")
    assert find_key("e") == "secret"
    forget_key(folder, "secret")
    forget_key(folder, "secret")
    assert find_key("e") == ""
    assert list(folder.iterdir()) == []
    monkeypatch.setenv(KEY, "from outside")
    assert find_key("e") == "from outside"
