"""A method and the store that is its memory, in step.

Order of writing: a proposal is made by the method and then written; an end state is written and then told to the
method. Should the disk fail in between, a proposal that could not be written is kept and handed out at the next try,
and an end state that could not be written has not been told: memory and disk agree about what was acknowledged.
Whatever the method leaves half done, it is made anew from the store.
"""

from __future__ import annotations

import math
import time
from typing import Any

from crbo_ros.core.method import Method
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import Exhausted
from crbo_ros.protocol.replay import Make, apply, replay
from crbo_ros.protocol.store import ExperimentStore, dump_state


class NoProposal(Exception):
    """The method failed where it should have made a proposal: a fault of its own, in a sentence."""


class Learner:
    """Whoever owns it holds a lock."""

    def __init__(self, store: ExperimentStore, make: Make) -> None:
        self.store, self._make = store, make
        self.method: Method = replay(make, store)
        self.unsaved: Proposal | None = None  # made early, or refused by the disk: for the next runner that asks
        self.propose_seconds = math.nan

    @property
    def pending(self) -> list[int]:
        """Ids of the proposals that are with a runner."""
        unseen = None if self.unsaved is None else self.unsaved.id
        return [id for id in self.method.pending if id != unseen]

    def make(self) -> Proposal:
        """The next proposal, which nobody has seen yet; the same until it is written or forgotten.

        Exhausted: the method has nothing left to propose. NoProposal: it failed.
        """
        if self.unsaved is None:
            start = time.thread_time()
            try:
                self.unsaved = self.method.ask()
            except Exhausted:
                self.rebuild()
                raise
            except Exception as error:
                self.rebuild()
                why = f"method {self.method.name} made no proposal ({type(error).__name__}: {error})"
                raise NoProposal(why) from error
            self.propose_seconds = time.thread_time() - start
        return self.unsaved

    def write(self, proposal: Proposal, runner: str, request_id: str) -> None:
        """From now on it is that runner's."""
        self.store.add_proposal(
            proposal, runner=runner, request_id=request_id, now=time.time(),
            report=_plain(self.method.report()), state=dump_state(self.method.head()),
        )  # fmt: skip
        self.unsaved = None

    def tell(self, verb: str, arguments: list[Any], end: TrialStatus) -> str:
        """Tell the method what is on disk already. Where it fails, it goes on without; what to say then, or ""."""
        try:
            apply(self.method, verb, arguments)
            return ""
        except Exception as error:
            self.rebuild()
            if self.method.trials[arguments[0]].end is end:
                return ""
            return (
                f"proposal {arguments[0]}: its end is on record, but the method could not use it "
                f"({type(error).__name__}: {error})"
            )

    def forget(self) -> None:
        """Discard a proposal that nobody has seen: the method goes back to what the store knows."""
        if self.unsaved is not None:
            self.rebuild()

    def rebuild(self) -> None:
        self.unsaved, self.method = None, replay(self._make, self.store)


def _plain(report: dict[str, Any]) -> dict[str, Any]:
    """JSON without NaN: metrics that are not known are left out."""
    return {k: v for k, v in report.items() if not (isinstance(v, float) and not math.isfinite(v))}
