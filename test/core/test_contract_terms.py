"""The contract's small print: what the start is, when a threshold is there, and what is said of one nobody can keep."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.bound import Beliefs
from crbo_ros.core.contract import Contract, Executed, Terms

X0, OTHER = np.array([0.5, 0.5]), np.array([0.5, 0.6])


def made(*rollouts: Executed | float, **terms: Any) -> Contract:
    """A number is theta_0's return."""
    contract = Contract(Terms(**terms), X0)
    for rollout in rollouts:
        contract.add(rollout if isinstance(rollout, Executed) else Executed(X0, rollout))
    return contract


def believed(contract: Contract, noise: float = 0.0) -> Beliefs:
    y = np.array([rollout.value for rollout in contract.rollouts])
    return Beliefs(np.array([rollout.x for rollout in contract.rollouts]).reshape(-1, 2), y, 0.0 * y, noise)


def test_the_start_is_theta_0s_first_returns_even_where_another_policy_came_first() -> None:
    contract = made(Executed(OTHER, 7.0), 1.0, math.nan, 2.0, Executed(OTHER, 7.0), 9.0)
    assert contract.start_values == [1.0, 2.0], "without those that gave no return, and none from later"
    assert (contract.J0, contract.J0_spread) == pytest.approx((1.5, math.sqrt(0.5)))
    assert math.isnan(made(1.0).J0_spread), "one return has no spread"
    assert math.isnan(made().J0)


def test_two_start_rollouts_agree_by_the_distance_to_the_threshold() -> None:
    assert not made(-1.0, -1.0625, j_min=-4.15625).wants_start(), "0.0625 is 2 % of the 3.125 that are left"
    assert made(-1.0, -1.07, j_min=-4.15625).wants_start()
    assert made(1.0, 1.02, j_min=0.5).wants_start()
    assert made(1.0, 1.0).wants_start(), "without a threshold there is nothing to agree on"


def test_a_threshold_is_there_or_not_and_a_relative_one_waits_for_its_start() -> None:
    assert not made(1.0).active
    assert made(1.0, j_min=0.5).active
    waiting = made(j_min_drop=0.5)
    assert (waiting.active, waiting.waits_for_start) == (False, True)
    assert not made(1.0, j_min_drop=0.5).waits_for_start
    assert not made(j_min=0.5).waits_for_start, "an absolute one waits for nobody"
    assert made(-2.0, j_min_drop=0.5).threshold == -3.0
    assert made(-2.0, j_min=-2.5, j_min_drop=0.5).threshold == -2.5, "the stricter of the two"


@pytest.mark.parametrize(
    ("values", "kept"),
    [((0.4,), 0.36), ((0.4, 0.4), 0.36), ((0.4, 0.6), 0.4 - 2.0 * math.sqrt(0.02)), ((0.45, 0.4), 0.4 - 0.0707107)],
)
def test_a_threshold_that_theta_0_cannot_keep_is_said_with_one_that_it_could(
    values: tuple[float, ...], kept: float
) -> None:
    reason = made(*values, j_min=0.5).impossible
    assert f"j_min {kept:.4g} " in reason, "its lowest return less twice the spread, or a tenth"
    fallen = sum(value < 0.5 for value in values)
    assert f"in {fallen} of its {len(values)} start rollouts" in reason


def test_theta_0_may_fall_as_often_as_the_risk_says_but_not_at_the_start() -> None:
    assert made(1.0, 1.0, 1.0, *[1.0] * 16, 0.4, j_min=0.5).impossible == "", "1 of 20 with risk 0.05"
    assert "2 of its 20 rollouts on record" in made(1.0, 1.0, 1.0, *[1.0] * 15, 0.4, 0.4, j_min=0.5).impossible
    assert made(1.0, 0.4, *[1.0] * 30, j_min=0.5).impossible, "within the risk, but at the start"
    assert made(0.0, Executed(X0, 0.0, "it broke")).impossible == "", "without a threshold nothing is impossible"
    assert "it broke" in made(1.0, Executed(X0, 1.0, "it broke"), j_min=0.5).impossible


def test_the_users_own_lipschitz_constant_is_the_whole_of_it_at_risk_0_alone() -> None:
    for risk, own in ((0.0, 3.0), (0.05, None)):
        contract = made(1.0, 1.0, j_min=0.5, risk=risk, lipschitz=3.0)
        assert contract._own == own
    strict = made(1.0, 1.0, j_min=0.5, risk=0.0, lipschitz=3.0)
    judgement = strict.judge(OTHER, believed(strict))
    assert (judgement.permitted, judgement.lipschitz) == (True, 3.0)
    assert judgement.gate == pytest.approx(0.7)
    assert not strict.judge(OTHER, believed(strict, noise=0.11)).permitted, "0.7 is below 0.5 + 2 x 0.11"
    assert strict.judge(OTHER, believed(strict, noise=0.09)).permitted
    unsure = made(1.0, 1.0, j_min=0.5, risk=0.0)
    refused = unsure.judge(OTHER, believed(unsure))
    assert (refused.permitted, refused.rule) == (False, "account")
    assert "none is set" in refused.reason


def test_returns_are_clipped_as_deep_below_the_threshold_as_the_start_is_above_it() -> None:
    contract = made(1.0, j_min=0.75)
    assert contract.clipped(np.array([-9.0, 0.6, 2.0])).tolist() == [0.5, 0.6, 2.0]
    assert made(1.0).clipped(np.array([-9.0])).tolist() == [-9.0]
    assert contract.clipped(np.array([])).tolist() == []
    assert made(j_min=0.5).clipped(np.array([-9.0])).tolist() == [-9.0], "nobody knows the start yet"


def test_theta_p_is_the_surest_of_those_that_never_fell() -> None:
    fallen, unsure = np.array([0.1, 0.1]), np.array([0.2, 0.2])
    contract = made(1.0, Executed(OTHER, 1.5), Executed(unsure, 3.0), Executed(fallen, 0.1), j_min=0.5)
    X = np.array([X0, OTHER, unsure, fallen])
    known = Beliefs(X, np.array([1.0, 1.5, 3.0, 9.0]), np.array([0.0, 0.1, 1.0, 0.0]), 0.0)
    assert contract.proven(known).tolist() == OTHER.tolist(), "1.5 - 0.2, against 3 - 2 and 1; the fallen never"
    surer = Beliefs(X, known.mean, np.array([0.0, 0.1, 0.8, 0.0]), 0.0)
    assert contract.proven(surer).tolist() == unsure.tolist(), "3 - 1.6"
    elsewhere = Beliefs(np.array([X0, [0.9, 0.9]]), np.array([1.0, 9.0]), np.zeros(2), 0.0)
    assert contract.proven(elsewhere).tolist() == X0.tolist(), "what never ran here is not proven, however good"
    nothing = made(0.1, j_min=0.5)
    assert nothing.proven(believed(nothing)).tolist() == X0.tolist()


def test_a_policy_that_fell_once_is_never_proven_again_and_counts_as_novel() -> None:
    contract = made(1.0, Executed(OTHER, 0.1), Executed(OTHER, 2.0), j_min=0.5, budget=100)
    assert not contract.is_proven(OTHER)
    assert (contract.account.novel, contract.account.novel_violations, contract.account.n) == (2, 1, 3)
    again = made(1.0, Executed(OTHER, 2.0), Executed(OTHER, 2.0), j_min=0.5, budget=100)
    assert again.is_proven(OTHER)
    assert again.account.novel == 1
    again.report(1, "it scraped")
    assert not again.is_proven(OTHER), "a person said so"


def test_the_worst_case_that_is_shown_is_further_off_than_the_gates_and_the_first_step_sets_both() -> None:
    contract = made(1.0, j_min=0.5)
    judgement = contract.judge(OTHER, believed(contract, noise=0.05))
    assert judgement.lipschitz == pytest.approx(0.5 / 0.1 / 3.0)
    assert judgement.lipschitz_shown == pytest.approx(4.0 * 0.5 / 0.1)
    assert judgement.gate == pytest.approx(1.0 - 0.5 / 3.0)
    assert judgement.worst_case == pytest.approx(1.0 - 4.0 * 0.5 - 2.0 * 0.05)
    assert judgement.nearest == 0
    assert judgement.distance == pytest.approx(0.1)
    assert math.isnan(contract.lipschitz), "nothing has been learnt before the first step"
    contract.add(Executed(OTHER, 1.0, "", 0.9))
    assert contract.lipschitz > 0.0
    assert (contract.coverage.held, contract.coverage.count) == (1, 1)
    contract.add(Executed(np.array([0.4, 0.4]), 0.8, "", 0.9))
    assert (contract.coverage.held, contract.coverage.count) == (1, 2), "below what was shown"


@pytest.mark.parametrize(("start", "terms", "drop"), [(4.0, {}, 2.0), (0.0, {}, 1.0), (-4.0, {"j_min": -5.0}, 1.0)])
def test_the_first_step_is_scaled_by_what_is_left_or_without_a_threshold_by_half_the_start(
    start: float, terms: dict[str, float], drop: float
) -> None:
    contract = made(start, **terms)
    assert contract.judge(OTHER, believed(contract)).lipschitz_shown == pytest.approx(4.0 * drop / 0.1)
    contract.add(Executed(OTHER, start))
    assert contract.lipschitz_shown == pytest.approx(4.0 * drop / 0.1), "kept by what came first"
    fallen = made(4.0, j_min=4.0)
    assert fallen.judge(OTHER, believed(fallen)).lipschitz_shown == pytest.approx(4.0 * 2.0 / 0.1), "nothing is left"


def test_an_empty_account_says_what_it_holds_needs_and_earns() -> None:
    contract = made(1.0, *[Executed(np.array([0.1, 0.1 * i]), 0.1) for i in range(3)], j_min=0.5, budget=100)
    reason = contract.judge(OTHER, believed(contract), pending=2).reason
    account = contract.account
    assert "3 of 4 rollouts fell, 2 more are counted until they end" in reason
    assert f"it holds {account.balance - 2:.3g} and a novel policy needs {account.rate:.2g}" in reason
    assert f"it fills by {account.income:.3g} per episode" in reason
    assert "until they end" not in contract.empty_reason(0)
    never = made(1.0, Executed(OTHER, 0.1), j_min=0.5, budget=100, risk=0.0, lipschitz=1.0)
    assert "it does not fill again" in never.empty_reason(0)


def test_what_is_sought_within_is_what_the_bound_permits() -> None:
    contract = made(1.0, Executed(OTHER, 1.0), j_min=0.5)
    known, L = believed(contract), contract.lipschitz
    points = np.array([[0.5, 0.6 + 0.45 / L], [0.5, 0.6 + 0.55 / L]])
    assert contract.feasible(points, known).tolist() == [True, False]
    assert made(1.0).feasible(points, believed(made(1.0))).all(), "without a threshold everything"
    assert made(1.0, j_min=0.5).feasible(points, known).all(), "before the first step, too: it sets L"


def test_a_refused_policy_is_steered_to_the_first_permitted_one_on_the_way_or_to_a_proven_one() -> None:
    contract = made(1.0, Executed(OTHER, 1.0), j_min=0.5, budget=100)
    known, L = believed(contract), contract.lipschitz
    near, far = np.array([0.5, 0.6 + 0.3 / L]), np.array([0.5, 0.6 + 1.0 / L])
    assert contract.steer(near, known)[1] == ""
    closer, why = contract.steer(far, known)
    assert why.startswith("steered to ")
    assert contract.judge(closer, known).permitted
    proven = contract.proven(known)
    assert (closer - proven) @ (far - proven) > 0.0, "towards it"
    share = float(np.linalg.norm(closer - proven) / np.linalg.norm(far - proven))
    assert f"steered to {share:g} of" in why
    again, why = contract.steer(near, known, novelty=False)
    assert (again.tolist(), "a proven policy again" in why) == (proven.tolist(), True)
    assert contract.steer(X0, known, novelty=False)[1] == "", "theta_0 is no novelty"
    assert contract.steer(OTHER, known, novelty=False)[1] == ""
    spent, why = contract.steer(near, known, pending=50)
    assert (spent.tolist(), "account is empty" in why) == (proven.tolist(), True), "no smaller step helps that"


def test_each_rule_speaks_for_itself_and_in_its_order() -> None:
    nowhere = Beliefs(np.empty((0, 2)), np.empty(0), np.empty(0), 0.0)
    blind = made(j_min=0.5).judge(OTHER, nowhere)
    assert (blind.permitted, blind.rule) == (False, "bound"), "what nothing vouches for is refused"
    assert made(j_min=0.5).judge(X0, nowhere).rule == "theta_0"
    assert not made(1.0, j_min=0.5).judge(OTHER, nowhere).permitted
    fallen = made(0.4, Executed(OTHER, 1.0), j_min=0.5)
    found = [fallen.judge(x, believed(fallen)) for x in (X0, OTHER, np.array([0.4, 0.4]))]
    assert [(one.permitted, one.rule) for one in found] == [
        (True, "theta_0"), (True, "proven"), (False, "theta_0 falls"),
    ]  # fmt: skip
    assert "nobody can keep that threshold" in found[-1].reason
    free = made(0.4).judge(OTHER, believed(made(0.4)))
    assert (free.permitted, free.rule) == (True, "no threshold")


def test_what_lies_on_the_threshold_has_not_fallen() -> None:
    assert not Executed(X0, 0.5).violates(0.5)
    assert Executed(X0, 0.5, "it scraped").violates(0.5)
    strict = made(1.0, 1.0, j_min=0.5, risk=0.0, lipschitz=4.0)
    assert strict.judge(np.array([0.5, 0.625]), believed(strict)).gate == 0.5
    assert strict.judge(np.array([0.5, 0.625]), believed(strict)).permitted
    assert not strict.judge(np.array([0.5, 0.626]), believed(strict)).permitted


def test_other_terms_count_everything_anew() -> None:
    contract = made(1.0, Executed(OTHER, 0.6), j_min=0.5, budget=100)
    assert (contract.account.violations, contract.is_proven(OTHER)) == (0, True)
    contract.change(Terms(j_min=0.7, budget=100))
    assert (contract.account.violations, contract.is_proven(OTHER)) == (1, False)


def test_a_fall_makes_the_gate_steeper_and_a_missed_worst_case_the_shown_one() -> None:
    first = 0.5 / 0.1 / 3.0
    calm, fell = (made(1.0, Executed(OTHER, value), j_min=0.5).lipschitz for value in (1.0, 0.4))
    assert calm < first < fell
    assert calm == pytest.approx(first, rel=0.1)
    held, missed = (made(1.0, Executed(OTHER, 0.8, "", worst), j_min=0.5).lipschitz_shown for worst in (0.8, 0.9))
    assert held == pytest.approx(20.0 * math.exp(-1.5 * 0.04)), "one that is just kept is kept"
    assert missed == pytest.approx(20.0 * math.exp(1.5 * 0.96))
    broken = made(1.0, Executed(OTHER, math.nan, "it broke", 0.9), j_min=0.5)
    assert broken.coverage.count == 0, "without a return nothing was missed"
    own = made(1.0, Executed(OTHER, 1.0), j_min=0.5, risk=0.0, lipschitz=1.0)
    assert own.lipschitz == pytest.approx(1.0), "the user's, though the first step would say 1.67"
    before = made(1.0, j_min=0.5, risk=0.0, lipschitz=1.0)
    assert before.judge(OTHER, believed(before)).lipschitz == pytest.approx(1.0)
