"""A lock that others cannot take for us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crbo_ros.file_lock import HeldError, private_folder, take_lock


def test_a_lock_is_held_by_one_and_follows_no_link(tmp_path: Path) -> None:
    lock = take_lock(tmp_path / "a.lock", 7, 0.0)
    with pytest.raises(HeldError) as held:
        take_lock(tmp_path / "a.lock", 8, 0.0)
    assert held.value.holder == "7"
    os.close(lock)
    (tmp_path / "b.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        take_lock(tmp_path / "b.lock", 7, 0.0)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_a_lock_that_another_user_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.lock").touch()
    os.chown(tmp_path / "a.lock", 4711, 4711)
    with pytest.raises(PermissionError, match="another user"):
        take_lock(tmp_path / "a.lock", 7, 0.0)


def test_locks_lie_in_a_folder_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = private_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="XDG_RUNTIME_DIR"):
        private_folder()
