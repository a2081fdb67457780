"""A runner's results on their way: to its own disk first, from there to the optimizer, until that has said what became
of them. And notes for the disk, which are written while others are busy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from crbo_ros.errors import StoreError
from crbo_ros.protocol.ports import REFUSED, Memory, Receipt
from crbo_ros.protocol.records import Episode


class Outbox:
    """What the loop has to keep and to hand in. It waits for nothing but the spool's disk."""

    def __init__(self, spool: Memory, say: Callable[[str, str], None]) -> None:
        self.spool, self._say = spool, say
        self.request = spool.request_id()  # for the next proposal
        self.interrupted = spool.recover()  # executions that a life before this one had begun
        self.unreported: list[Episode] = spool.pending()
        self.recent: list[Episode] = []  # the last results, for a monitor whose topic is slow
        self.kept: Episode | None = None  # a result that is on no disk yet
        self._notes: list[Callable[[], None]] = []

    def keep(self) -> None:
        """Write the result in hand. StoreError: it waits for room on the disk."""
        if (episode := self.kept) is not None:
            self.request = self.spool.add(episode)
            self.unreported.append(episode)
            self.kept = None
            if episode.executed:
                self.recent = [*self.recent[-2:], episode]

    def settle(self, receipt: Receipt) -> None:
        """The optimizer has answered for good about the first one."""
        episode, end = self.unreported.pop(0), "refused" if receipt.status == REFUSED else "done"
        if end == "refused":
            self._say("error", f"episode {episode.proposal_id} refused, kept aside: {receipt.reason}")
        self._notes.append(partial(self.spool.settle, episode.episode_uid, end, receipt.reason))

    def note(self, write: Callable[[], None]) -> None:
        """To be written now, or as soon as the disk takes it."""
        self._notes.append(write)
        self.write_notes()

    def write_notes(self) -> None:
        """Mark in the spool what the optimizer has answered and what was broken off.

        Killed before that, the runner hands those results in again after its restart, and they are duplicates; and what
        has begun and has no end is taken for interrupted.
        """
        while self._notes:
            try:
                self._notes[0]()
            except StoreError as error:  # no harm is done: the next time
                self._say("error", str(error))
                return
            del self._notes[0]
