"""Whether a plant is in its safe state: said by whoever made it safe, with what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Safe:
    """CONFIRMED, and `reason` says what was measured; or UNCONFIRMED, and it says why."""

    confirmed: bool
    reason: str = ""

    def __str__(self) -> str:
        return f"{'CONFIRMED' if self.confirmed else 'UNCONFIRMED'}: {self.reason}"


def safe_of(answer: object, trusted: bool, what: str) -> Safe:
    """What a `stop` answered; one that answers nothing is believed where nothing real moves (`trusted`)."""
    if isinstance(answer, Safe):
        return answer
    return Safe(trusted, "simulated" if trusted else f"{what} does not say what its stop measured")
