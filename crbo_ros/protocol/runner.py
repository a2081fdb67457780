"""The runner's half of docs/PROTOCOL.md: ask, prepare, judge, run, make safe, hand in. There is no other copy of it.

A state machine without ROS, threads or a clock of its own: time is an argument, nothing waits. Whoever drives it calls
the events as answers come (cheap, at any time; what answers no question in hand is ignored) and `step` whenever the
time that it returned has passed. `told` may be called from another thread; the rest belongs to one.

What it keeps, whatever is dropped, delayed, doubled, frozen or killed (test/protocol/test_loop.py tries):
1. the policy begins only under a permit without refusal, once for each verdict, after that is on disk;
2. what was begun ends as exactly one result or as interrupted; repeated at most `repeats` times, then HELD;
3. a plant that is broken, or not known to be safe, is a FAULT until a person clears it, in this life or the next, and
   ends no proposal; but one under which it broke `breaks` times is set aside;
4. STOP and QUIT stop the plant in the same call, from every state; QUIT leaves no measured result behind;
5. no call blocks (but for the spool's disk), and no jump of the clock opens a gate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from crbo_ros.core.problem import differences
from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.gate import HELD, LOST, QUIT, Gate, Obstacle, Permit
from crbo_ros.protocol.hand import Hand
from crbo_ros.protocol.outbox import Outbox
from crbo_ros.protocol.ports import (
    ACCEPTED,
    DONE,
    DUPLICATE,
    MONITOR,
    MOVING,
    OK,
    OPTIMIZER,
    REFUSED,
    SAFE,
    UNKNOWN,
    WAIT,
    Answer,
    Command,
    Limits,
    Link,
    Memory,
    Ran,
    Receipt,
    Rig,
    Safe,
    Stage,
    State,
    Status,
)
from crbo_ros.protocol.questions import Question, Questions
from crbo_ros.protocol.records import (
    APPROVED,
    FAILED,
    RETURNED,
    STOPPED,
    VETOED,
    Offer,
    Verdict,
    new_uid,
)

CONSENT = "waits for the operator's consent (clear): "


def _nothing(level: str, text: str) -> None:
    """Nobody listens."""


@dataclass
class EpisodeLoop:
    """See the module's docstring. `experiment` and `problem`: proposals of others are not run; empty: any."""

    runner: str
    spool: Memory
    link: Link
    rig: Rig
    gate: Gate
    limits: Limits = field(default_factory=Limits)
    experiment: str = ""
    problem: str = ""
    space: Space | None = None
    key: str = ""
    exit_when_done: bool = False
    consent: str = ""  # what a person must agree to (CLEAR) before the first movement of this life; "": nothing
    say: Callable[[str, str], None] = _nothing  # (level, text) to the log
    stamp: Callable[[], float] = time.time  # for people: when a result was made

    def __post_init__(self) -> None:
        self.status = Status()
        self.outbox = Outbox(self.spool, self.say)
        self.questions = Questions(self.link, self.limits, self.status, self.say)
        self.status.interrupted = self.outbox.interrupted
        self._asked = -math.inf  # when the optimizer was last asked for a proposal
        self._hand: Hand | None = None
        self._quitting, self._cleared, self._consenting = "", False, False
        self._give_back = False
        self._last = -math.inf
        self._rested = False
        self._failures = 0  # in a row
        self.why_done = ""
        self._quit_at = math.nan
        self._look_at_the_plant(self.rig.safe())
        if fault := self.spool.fault():  # of a life before this one
            self._go(State.FAULT, fault)
        elif self.status.plant != SAFE:
            self._latch(f"the plant is not known to be safe: {self.status.plant_reason}")
        elif self.consent:
            self._consenting = True
            self._go(State.HELD, CONSENT + self.consent)

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def offer(self) -> Offer | None:
        return None if self._hand is None else self._hand.offer

    # -- events ------------------------------------------------------------------------------------

    def told(self, command: Command, why: str = "") -> None:
        """A command. Thread-safe: the plant is stopped at once, the rest is `step`'s."""
        if command is Command.QUIT:
            self._quitting = why or "told to end"
            self.rig.stop(QUIT, self._quitting)
        elif command is Command.STOP:
            self.rig.stop(HELD, why or "stop was called")
        elif command is Command.CLEAR:
            self._cleared = True
        else:
            self._give_back = self._cleared = True

    def proposed(self, now: float, nonce: str, answer: Answer) -> None:
        """The optimizer's answer to `link.propose`."""
        question = self.questions.answered(nonce) if self.state in (State.ASK, State.HELD) else None
        if question is None:
            return
        if self.state is State.HELD:  # it was only asked whether the run is over
            if answer.status == DONE and not self._foreign(answer):
                self._finish(now, answer)
        elif reason := self._foreign(answer):
            self.questions.wait(now, 0.5, reason, alarm=True)
        elif answer.status == OK and answer.offer is not None:
            self._take(now, question, answer.offer)
        elif answer.status == WAIT:
            self._drop_hand()
            self.questions.wait(now, answer.retry_after, answer.reason)
        elif answer.status == DONE:
            self._finish(now, answer)
        else:
            self._refused(now, answer.reason)

    def _refused(self, now: float, reason: str) -> None:
        """The proposal of the request in hand has ended: the next request."""
        self._drop_hand()
        self.say("warning", f"request refused: {reason}")
        try:
            self.outbox.request = self.spool.new_request()
            self.questions.wait(now, 0.0, reason)
        except StoreError as error:
            self.questions.wait(now, self.limits.retry, str(error))

    def judged(self, now: float, nonce: str, verdict: Verdict) -> None:
        """The monitor's answer to `link.check`."""
        question = self.questions.answered(nonce) if self.state is State.JUDGE else None
        hand = self._hand
        if question is None or hand is None:
            return
        permit = Permit(self.gate, verdict, question.sent)
        if mismatch := permit.mismatch(hand.offer, self.runner, nonce, self.key):
            self.say("error", f"a verdict for something else was discarded: {mismatch}")
            self.questions.wait(now, hand.pause, mismatch)
        elif verdict.status == APPROVED:
            hand.permit = permit
        elif verdict.status == VETOED:
            self.rig.stop(LOST, verdict.reason)
            self._go(State.MAKE_SAFE, verdict.reason)
            hand.permit, hand.ran = permit, Ran(VETOED, reason=verdict.reason)
        else:
            self.questions.wait(now, hand.pause, verdict.reason)
            hand.pause = min(2.0 * hand.pause, 0.5)

    def acknowledged(self, now: float, episode_uid: str, receipt: Receipt) -> None:
        """The optimizer's answer to `link.report`."""
        waiting = self.outbox.unreported
        if not waiting or waiting[0].episode_uid != episode_uid:
            return
        self.questions.in_hand = None
        if receipt.status in (ACCEPTED, DUPLICATE, REFUSED):
            self.outbox.settle(receipt)
            self.status.unreported = len(waiting)
        else:
            self.say("warning", f"the optimizer cannot take episode {waiting[0].proposal_id}: {receipt.reason}")
            self.questions.wait(now, self.limits.retry, receipt.reason)

    # -- time --------------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Do what can be done now, one thing; s until it wants to be called again at the latest."""
        if now < self._last:  # no clock of ours goes back; should one, no question or pause of before counts
            self.questions.forget(now)
        self._last, holds = now, self.gate.holds
        pause = self._step(now)
        self.status.holds = holds  # what is safe from here on is so under that hold
        return pause

    def _step(self, now: float) -> float:
        if self._quitting and math.isnan(self._quit_at):
            self._quit_at = now
        hand = self._hand
        if hand is not None and self.limits.renew <= now - hand.renewed and now <= hand.leased_until:
            hand.renewed, hand.leased_until = now, now + hand.offer.lease
            self.link.renew(hand.offer)
        return self._STEPS[self.state](self, now)

    def _hand_in(self, now: float) -> float:
        if not self.outbox.unreported:
            self._go(State.ENDED if self._quitting else State.ASK)
            return 0.0
        if self._quitting:  # it is on disk: the next start hands it in
            return self._end()
        if (wait := self.questions.may_ask(now, OPTIMIZER)) > 0.0:
            return wait
        self.questions.ask(now, self.outbox.unreported[0].episode_uid)
        self.link.report(self.outbox.unreported[0])
        self.outbox.write_notes()
        return self.limits.answer

    def _ask_for_proposal(self, now: float) -> float:
        if self._quitting:
            return self._end()
        if self._failures >= self.limits.failures:
            self._go(State.HELD, f"{self._failures} episodes in a row failed")
            self.say("error", f"{self.status.message}: look at the plant, then clear it")
            return 0.0
        if (wait := self.questions.may_ask(now, OPTIMIZER)) > 0.0:
            return wait
        self._asked = now
        self.link.propose(self.questions.ask(now), self.outbox.request)
        self.outbox.write_notes()
        return self.limits.answer

    def _prepare(self, now: float) -> float:
        hand = self._in_hand()
        if self._quitting:
            return self._end()
        if hand.breaks >= self.limits.breaks:
            reason = f"set aside: the plant failed {hand.breaks} times under it"
            self.say("error", f"proposal {hand.offer.id} ({hand.offer.kind}) is {reason}")
            self._result(hand, Ran(FAILED, reason=reason))
            return 0.0
        if hand.begun > self.limits.repeats:
            self._go(State.HELD, f"proposal {hand.offer.id} was begun {hand.begun} times and broken off each time")
            self.say("error", f"{self.status.message}: clear it, or give it back")
            return 0.0
        obstacle = self.gate.obstacle(now)
        if now > hand.leased_until or (obstacle and now - self._asked > self.limits.recheck):
            self._go(State.ASK, self.status.message)  # the same request: is it still ours, is the run over?
            return 0.0
        self.status.held = obstacle is not None and obstacle.kind == HELD
        if obstacle:
            found = "" if obstacle.kind == HELD else self.link.obstacle(MONITOR)
            self.status.message = f"{MONITOR} {found}" if found else obstacle.reason
            self.questions.complain(now)
            return min(self.limits.look, 0.02)
        hand.start_over()
        self.status.plant, self.status.plant_reason = MOVING, ""
        self._go(State.READY, f"proposal {hand.offer.id} ({hand.offer.kind})")
        self.rig.prepare(hand.offer)
        return 0.0

    def _ready(self, now: float) -> float:
        """On the way to the start set, by the reset's own permission: an open gate."""
        hand = self._in_hand()
        progress = self.rig.look()
        if progress.stage is Stage.PREPARED:
            hand.prepared_at = now
            self.questions.forget(now)
            self._go(State.JUDGE)
            return 0.0
        if progress.stage is Stage.BROKEN:
            return self._fault(progress.reason)
        if progress.stage is Stage.ENDED:  # refused before it moved, or stopped
            return self._stopped(progress.ran)
        if obstacle := self._obstacle(now):
            return self._halt(obstacle)
        return self.limits.look

    def _judge(self, now: float) -> float:
        hand = self._in_hand()
        progress = self.rig.look()
        if progress.stage is Stage.BROKEN:
            return self._fault(progress.reason)
        if progress.stage is Stage.ENDED and not hand.released:
            return self._stopped(progress.ran)
        if obstacle := self._obstacle(now):
            return self._halt(obstacle)
        if hand.permit is not None:
            return self._approved(now, hand, hand.permit, progress.stage is Stage.PREPARED)
        if not hand.released and now - hand.prepared_at > self.limits.patience and self.questions.in_hand is None:
            hand.released = True  # an operator may take their time; the plant need not balance meanwhile
            self.rig.stop(LOST, self.status.message)
            return 0.0
        if (wait := self.questions.may_ask(now, MONITOR)) > 0.0:
            return min(wait, self.limits.look)
        nonce = self.questions.ask(now)
        self.link.check(nonce, hand.offer, self.outbox.recent)
        return self.limits.look

    def _approved(self, now: float, hand: Hand, permit: Permit, prepared: bool) -> float:
        if not prepared:  # the plant was made safe while a person thought: once more, and a fresh verdict
            hand.permit = None
            self._go(State.PREPARE)
            return 0.0
        if refusal := permit.refusal(now):
            hand.permit = None
            self.say("warning", f"proposal {hand.offer.id} does not run: {refusal.reason}")
            self.questions.wait(now, hand.pause, refusal.reason)
            return 0.0
        hand.episode_uid = new_uid()
        try:
            self.spool.begin(hand.episode_uid, hand.request_id, hand.offer, permit.verdict.verdict_id)
        except StoreError as error:  # what cannot be written down does not move
            hand.episode_uid, hand.permit = "", None
            self.say("error", str(error))
            self.questions.wait(now, self.limits.retry, str(error))
            return 0.0
        self._go(State.BEGIN)
        return 0.0

    def _begin(self, now: float) -> float:
        """A step of its own: writing took time, and the permit is looked at again."""
        hand = self._in_hand()
        assert hand.permit is not None
        if obstacle := self._obstacle(now):
            return self._halt(obstacle)
        if refusal := hand.permit.refusal(now):
            return self._halt(refusal)
        self.status.verdict_id = hand.permit.verdict.verdict_id
        self._go(State.RUN, f"proposal {hand.offer.id} ({hand.offer.kind})")
        self.rig.begin(hand.permit)
        return 0.0

    def _run(self, now: float) -> float:
        hand = self._in_hand()
        progress = self.rig.look()
        if progress.stage is Stage.BROKEN:
            return self._fault(progress.reason)
        if progress.stage is Stage.ENDED:
            return self._stopped(progress.ran)
        assert hand.permit is not None
        if obstacle := self._obstacle(now, hand.permit):
            return self._halt(obstacle)
        return self.limits.look

    def _make_safe(self, now: float) -> float:
        """The plant has been told to stop, or has ended by itself: look that it is safe, then book what it gave."""
        hand = self._in_hand()
        if math.isnan(hand.stopping_since):
            hand.stopping_since = now
        progress = self.rig.look()
        if progress.stage is Stage.BROKEN:
            return self._fault(progress.reason)
        if progress.stage not in (Stage.IDLE, Stage.ENDED):
            if (safe := self.rig.safe()).confirmed:  # though what drove it has not come back
                self._look_at_the_plant(safe)
            if now - hand.stopping_since > self.limits.safe:
                return self._fault(f"policy or plant did not come to an end within {self.limits.safe:g} s")
            return min(self.limits.look, 0.01)
        if hand.ran is None and progress.ran is not None:
            hand.ran = progress.ran
        safe = self.rig.safe()
        self._look_at_the_plant(safe)
        return self._book(hand, "" if safe.confirmed else f"the plant is not known to be safe: {safe.reason}")

    def _book(self, hand: Hand, fault: str) -> float:
        """What became of the execution: a result, an interruption, or nothing (it had not begun)."""
        ran, self.status.verdict_id, hand.stopping_since = hand.ran, "", math.nan
        hand.ran = None
        begun, stopped = bool(hand.episode_uid), ran is None or ran.outcome == STOPPED
        if ran is not None and (not stopped or (begun and ran.stopped_by == HELD)):
            if begun and not stopped:
                self.status.episodes += 1
            self._result(hand, ran)
        else:
            reason = (ran.reason if ran is not None else "") or self._quitting or "stopped"
            if not begun:
                self.say("warning", f"proposal {hand.offer.id} does not run: {reason}")
            self._interrupted(hand, reason)
            self._go(State.PREPARE)
        if fault:
            self._latch(fault)
        return 0.0

    def _interrupted(self, hand: Hand, reason: str, broken: bool = False) -> None:
        if not hand.episode_uid:
            return
        uid, hand.episode_uid = hand.episode_uid, ""
        hand.begun += not broken
        hand.breaks += broken
        self.status.interrupted += 1
        count = hand.breaks if broken else hand.begun
        self.say("warning", f"proposal {hand.offer.id} was broken off ({count}): {reason}")
        self.outbox.note(partial(self.spool.interrupt, uid, reason, broken))

    def _result(self, hand: Hand, ran: Ran) -> None:
        """A result for the proposal in hand: to the disk, then to everybody."""
        self._failures = self._failures + 1 if ran.outcome == FAILED else 0
        if ran.outcome == FAILED:
            self.say("error", f"proposal {hand.offer.id} failed: {ran.reason}")
        self.outbox.kept = hand.episode(ran, self.runner, self.stamp())
        self.questions.not_before = -math.inf
        self._go(State.KEEP)
        self._keep(self._last)

    def _keep(self, now: float) -> float:
        if now >= self.questions.not_before:
            try:
                self.outbox.keep()
            except StoreError as error:  # the plant is safe; the result waits for room on the disk
                self.say("error", f"the result of proposal {self._in_hand().offer.id} cannot be kept: {error}")
                self.questions.wait(now, self.limits.retry, str(error))
        if self.outbox.kept is not None:
            if now - self._quit_at > self.limits.farewell:  # (NaN while nobody told it to quit)
                self.say("fatal", f"a measured result is lost with this process: {self.outbox.kept.to_json()}")
                return self._end()
            return max(self.questions.not_before - now, 0.01)
        self._drop_hand()
        self.status.unreported = len(self.outbox.unreported)
        self._go(State.HAND_IN)
        return 0.0

    def _held(self, now: float) -> float:
        """HELD or FAULT: nothing begins until a person has looked. Whether the run is over is asked all the same."""
        if self._quitting:
            return self._end()
        if not self._cleared:
            if self._consenting:  # what it is asked for may have become clearer
                self.status.message = CONSENT + self.consent
            if self.state is State.HELD and now - self._asked > self.limits.recheck:
                self._asked = now
                self.link.propose(self.questions.ask(now), self.outbox.request)
            elif self.state is State.FAULT:
                self._look_at_the_plant(self.rig.safe())
            return 0.1
        self._cleared = self._consenting = False
        hand = self._hand
        safe = self.rig.safe()
        if not safe.confirmed:
            self.rig.stop(LOST, "cleared by a person")
            self._go(State.FAULT, f"the plant was not known to be safe ({safe.reason}); stopping it again, then clear")
            return 0.1
        self._look_at_the_plant(safe)
        self._failures = 0
        if self.state is State.FAULT:
            self.say("warning", f"a person has cleared the fault: {self.status.message} ({safe})")
            self.outbox.note(partial(self.spool.latch, ""))
        if hand is None:
            self._go(State.HAND_IN)
        elif self.outbox.kept is not None:
            self._go(State.KEEP)
        elif self._give_back:
            self._interrupted(hand, "given back")
            self._result(hand, Ran(RETURNED, reason="given back by the operator"))
        else:
            hand.begun = 0
            self.outbox.note(partial(self.spool.forgive, hand.request_id))
            self._go(State.PREPARE)
        self._give_back = False
        return 0.0

    def _done(self, now: float) -> float:
        if self.rig.look().stage not in (Stage.IDLE, Stage.ENDED):  # it is still being left with the best policy
            return self.limits.look
        if self._quitting or self.exit_when_done:
            return self._end()
        if now - self._asked > self.limits.recheck:  # a larger budget lets it go on
            self.questions.in_hand = None
            self._go(State.ASK, self.status.message)
            return 0.0
        return self.limits.recheck

    def _ended(self, now: float) -> float:
        return math.inf

    # -- what the steps share ----------------------------------------------------------------------

    def _go(self, state: State, message: str = "") -> None:
        if state is not self.status.state:
            self.questions.in_hand = None  # an answer that comes later is none
        self.status.state, self.status.message = state, message

    def _end(self) -> float:
        self._go(State.ENDED, self._quitting or self.status.message)
        return 0.0

    def _in_hand(self) -> Hand:
        assert self._hand is not None
        return self._hand

    def _drop_hand(self) -> None:
        self._hand, self.status.proposal_id, self.status.held = None, -1, False

    def _foreign(self, answer: Answer) -> str:
        """Why this optimizer is not ours, or ""."""
        if self.experiment and answer.experiment not in ("", self.experiment):
            return (
                f"the optimizer is of experiment {answer.experiment!r}, this runner of {self.experiment!r}: use a "
                "namespace for each experiment; nothing moves"
            )
        if self.problem and answer.problem not in ("", self.problem):
            what = "; ".join(differences(answer.problem, self.problem))
            return f"the optimizer optimises something else than this runner runs ({what}); nothing moves"
        return ""

    def _take(self, now: float, question: Question, offer: Offer) -> None:
        """A proposal: a new one, or the one in hand once more."""
        hand = self._hand
        known = hand is not None and (hand.offer.experiment_uid, hand.offer.id) == (offer.experiment_uid, offer.id)
        if hand is None or not known:
            begun, breaks = self.spool.interruptions(self.outbox.request), self.spool.breaks(self.outbox.request)
            hand = self._hand = Hand(offer, self.outbox.request, 0.0, begun, breaks)
        hand.leased_until = question.sent + offer.lease
        self.status.proposal_id, self.status.experiment_uid = offer.id, offer.experiment_uid
        self.questions.not_before = -math.inf
        try:
            if self.space is not None:
                self.space.check(offer.theta)
            if theta_hash(offer.theta) != offer.theta_hash:
                raise InvalidInput("theta_hash: not the hash of theta")
        except InvalidInput as error:
            self._result(hand, Ran(FAILED, reason=str(error)))
            return
        self._go(State.PREPARE, self.status.message if known else "")

    def _finish(self, now: float, answer: Answer) -> None:
        """Nothing left to propose."""
        self._drop_hand()
        self.why_done = answer.reason
        self._go(State.DONE, answer.reason)
        if not self._rested:
            self._rested = True
            self.say("info", f"done: {answer.reason}")
            if answer.offer is not None:
                self.rig.rest(answer.offer.theta)

    def _obstacle(self, now: float, permit: Permit | None = None) -> Obstacle | None:
        """Why what is under way may not go on."""
        if self._quitting:
            return Obstacle(QUIT, self._quitting)
        return self.gate.obstacle(now) if permit is None else permit.obstacle(now)

    def _halt(self, obstacle: Obstacle) -> float:
        """Stop the plant; what it gives is booked when it is safe."""
        self.rig.stop(obstacle.kind, obstacle.reason)
        self._go(State.MAKE_SAFE, obstacle.reason)
        return 0.0

    def _stopped(self, ran: Ran | None) -> float:
        """The plant has come to its end by itself."""
        self._in_hand().ran = ran
        self._go(State.MAKE_SAFE, "" if ran is None else ran.reason)
        return 0.0

    def _fault(self, reason: str) -> float:
        """The plant is broken, by no fault of the proposal: it stays in hand, and a person must look."""
        self.rig.stop(LOST, reason)
        self._interrupted(self._in_hand(), reason, broken=True)
        self._in_hand().stopping_since = math.nan
        self.status.verdict_id = ""
        self._look_at_the_plant(self.rig.safe())
        self._latch(reason)
        return 0.0

    def _latch(self, fault: str) -> None:
        """Nothing begins until a person clears it, in this life or the next."""
        self.questions.in_hand = None
        self._go(State.FAULT, fault)
        self.say("fatal", f"FAULT: {fault} (the plant: {self.status.plant}, {self.status.plant_reason})")
        self.outbox.note(partial(self.spool.latch, fault))

    def _look_at_the_plant(self, safe: Safe) -> None:
        self.status.plant, self.status.plant_reason = SAFE if safe.confirmed else UNKNOWN, safe.reason

    _STEPS = {
        State.HAND_IN: _hand_in, State.ASK: _ask_for_proposal, State.PREPARE: _prepare, State.READY: _ready,
        State.JUDGE: _judge, State.BEGIN: _begin, State.RUN: _run, State.MAKE_SAFE: _make_safe, State.KEEP: _keep,
        State.HELD: _held, State.FAULT: _held, State.DONE: _done, State.ENDED: _ended,
    }  # fmt: skip
