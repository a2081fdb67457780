"""The proposal that a runner has in hand: what is known of it, and the result that becomes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from crbo_ros.core.trial import NAN
from crbo_ros.protocol.gate import Permit
from crbo_ros.protocol.ports import Ran
from crbo_ros.protocol.records import Episode, Offer, new_uid

MEASURED = [field.name for field in fields(Ran) if field.name != "stopped_by"]


@dataclass
class Hand:
    """One proposal, from the optimizer's offer to its end."""

    offer: Offer
    request_id: str
    leased_until: float
    begun: int  # executions that were broken off since a person last looked
    breaks: int  # executions under which the plant failed
    permit: Permit | None = None
    episode_uid: str = ""  # of the execution that has begun
    prepared_at: float = math.nan
    renewed: float = -math.inf
    ran: Ran | None = None
    stopping_since: float = math.nan
    pause: float = 0.02  # between two questions to a monitor that says WAITING
    released: bool = False  # the plant was made safe while a person thinks about this proposal

    def start_over(self) -> None:
        """Before the plant is prepared, for the first time or once more."""
        self.permit, self.ran, self.prepared_at, self.pause, self.released = None, None, math.nan, 0.02, False

    def episode(self, ran: Ran, runner: str, stamp: float) -> Episode:
        """What came of it, as a result."""
        verdict = self.permit.verdict if self.permit is not None else None
        return Episode(
            episode_uid=self.episode_uid or new_uid(), experiment_uid=self.offer.experiment_uid,
            proposal_id=self.offer.id, runner=runner, theta=self.offer.theta, problem=self.offer.problem,
            verdict_id=verdict.verdict_id if verdict else "",
            predicted_worst_case=verdict.worst_case if verdict else NAN, stamp=stamp,
            **{name: getattr(ran, name) for name in MEASURED},
        )  # fmt: skip
