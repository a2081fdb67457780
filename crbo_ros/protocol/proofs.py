"""Proofs for an operator's commands that loosen something: HMAC by the graph's key over a challenge that is used once.

Tightening (stop, a stricter threshold, a rejection) needs none. Without a key nobody can tell who speaks, and everybody
may; docs/SECURITY.md says what that means.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
from collections import deque
from pathlib import Path

from crbo_ros.home import home

KEY = "CRBO_KEY"  # environment: what monitor and runners of one graph share, and nobody else
KEY_FILE = "operator.key"  # in the experiment's folder, for its user alone
REARM, APPROVE, SET, CLEAR, GIVE_BACK = "rearm", "approve", "set", "clear", "give_back"
ADVICE = "it loosens something and needs a proof: ./crbo operator"


def prove(key: str, challenge: str, command: str, arguments: str, who: str) -> str:
    """As srv/OperatorCommand says."""
    text = json.dumps([challenge, command, arguments, who])
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


class Challenges:
    """Those that were given and not used yet; the newest 32."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._given: deque[str] = deque(maxlen=32)

    def give(self) -> str:
        self._given.append(secrets.token_hex(16))
        return self._given[-1]

    def check(self, challenge: str, proof: str, command: str, arguments: str, who: str) -> str:
        """Why a command is not accepted, or "". A challenge is used up by the command that it proves."""
        if not self._key:
            return ""
        if not challenge or not proof:
            return f"{command}: {ADVICE} {command}"
        if challenge not in self._given:
            return "challenge: not given lately, or used before"
        wanted = prove(self._key, challenge, command, arguments, who)
        if not hmac.compare_digest(proof.encode(), wanted.encode()):
            return "proof: not made with the key of this experiment"
        self._given.remove(challenge)
        return ""


def keep_key(folder: Path, key: str) -> None:
    """Where the operator's tools of the same user find it."""
    path = folder / KEY_FILE
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w") as stream:
        stream.write(key)


def forget_key(folder: Path, key: str) -> None:
    """The graph has ended: its key opens nothing any more. (That of a graph that began since stays.)"""
    path = folder / KEY_FILE
    with contextlib.suppress(OSError):
        if path.read_text() == key:
            path.unlink()


def find_key(experiment: str = "", experiments_dir: str | Path = "") -> str:
    """The environment's, or that of an experiment in its folder; "" where there is none."""
    if key := os.environ.get(KEY, ""):
        return key
    for place in (Path(), home(experiments_dir)):
        path = place / experiment / KEY_FILE
        if experiment and path.is_file():
            return path.read_text()[:256].strip()
    return ""
