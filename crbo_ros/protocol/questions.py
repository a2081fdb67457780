"""A runner's questions: one at a time, of somebody who is there, and once more when no answer comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from crbo_ros.protocol.ports import Limits, Link, Status
from crbo_ros.protocol.records import new_uid


@dataclass(frozen=True)
class Question:
    """What its answer must name, and when it was sent, on the runner's clock."""

    nonce: str
    sent: float


class Questions:
    """Who may be asked now, and which question is in hand. What it waits for is in `status.message`."""

    def __init__(self, link: Link, limits: Limits, status: Status, say: Callable[[str, str], None]) -> None:
        self._link, self._limits, self._status, self._say = link, limits, status, say
        self.in_hand: Question | None = None
        self.not_before = -math.inf  # the next question
        self._complaint: tuple[str, float | None] = ("", None)  # (what it waits for, since when unless said)

    def forget(self, not_before: float = -math.inf) -> None:
        """An answer that comes later is none; the next question may be put from then on."""
        self.in_hand, self.not_before = None, not_before

    def ask(self, now: float, nonce: str = "") -> str:
        """The nonce of a new question."""
        self.in_hand = Question(nonce or new_uid(), now)
        return self.in_hand.nonce

    def answered(self, nonce: str) -> Question | None:
        """The question in hand, if this is an answer to it; it is answered then."""
        question = self.in_hand
        if question is None or question.nonce != nonce:
            return None
        self.in_hand = None
        return question

    def wait(self, now: float, seconds: float, reason: str, alarm: bool = False) -> None:
        if alarm and reason != self._status.message:
            self._say("error", reason)
        self.not_before, self._status.message = now + seconds, reason

    def may_ask(self, now: float, whom: str) -> float:
        """0 when a question may be put to them now, else s until the next look."""
        obstacle, limit = self._link.obstacle(whom), self._limits.answer
        if self.in_hand is not None:
            left = self.in_hand.sent + limit - now
            if left > 0.0 and not obstacle:
                return min(left, 0.1)
            self._say("warning", f"{whom} {obstacle or f'gave no answer within {limit:g} s'}; asking again")
            self.in_hand = None
        if now < self.not_before:
            return self.not_before - now
        if obstacle:
            self.wait(now, 0.1, f"{whom} {obstacle}")
            self.complain(now)
            return 0.1
        return 0.0

    def complain(self, now: float) -> None:
        """Say what it waits for, once, if that lasts longer than a start takes."""
        if self._complaint[0] != self._status.message:
            self._complaint = (self._status.message, now)
        elif self._complaint[1] is not None and now - self._complaint[1] > 1.0:
            self._say("warning", f"waits: {self._status.message}")
            self._complaint = (self._status.message, None)
