"""The account of violations: whatever the returns are, novel policies never fall more often than was promised."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbo_ros.core.account import RiskAccount

RISKS = st.sampled_from([1e-9, 0.001, 0.02, 0.05, 0.1, 0.3, 0.7, 1.0]) | st.floats(1e-6, 1.0)
BUDGETS = st.sampled_from([1, 3, 10, 19, 20, 21, 99, 100, 101]) | st.integers(1, 300)


@settings(max_examples=300, deadline=None)
@given(RISKS, BUDGETS, st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=320))
def test_novel_policies_never_fall_more_often_than_promised_for_any_sequence(
    risk: float, budget: int, sequence: list[tuple[bool, bool]]
) -> None:
    account = RiskAccount(risk, budget)
    for wants_novel, falls in sequence:
        account.book(falls, wants_novel and account.permits())
        assert account.novel_violations <= account.limit
        if account.n <= budget:
            assert account.novel_violations <= math.ceil(risk * budget)


@settings(max_examples=200, deadline=None)
@given(RISKS, BUDGETS, st.integers(1, 6), st.data())
def test_several_rollouts_at_once_cannot_break_the_promise(
    risk: float, budget: int, runners: int, data: st.DataObject
) -> None:
    """Rollouts begin and end in any order; repeats of proven policies fall, too."""
    account, pending = RiskAccount(risk, budget), 0
    for _ in range(data.draw(st.integers(1, 150))):
        if pending < runners and data.draw(st.booleans()):
            if account.permits(pending):
                pending += 1
            else:
                account.book(data.draw(st.integers(0, 9)) == 0, novel=False)
        elif pending:
            account.book(data.draw(st.booleans()), novel=True)
            pending -= 1
        worst = account.novel_violations + pending
        assert worst <= account.limit, "even if all that is under way fell"


@pytest.mark.parametrize("risk", [0.02, 0.05, 0.1])
def test_an_adversary_who_lets_every_novel_policy_fall_gets_exactly_the_budget_and_no_more(risk: float) -> None:
    account = RiskAccount(risk, 100)
    for _ in range(100):
        account.book(account.permits(), account.permits())
    assert account.violations == account.novel_violations
    assert math.ceil(100 * risk) - 1 <= account.violations <= math.ceil(100 * risk)


@given(RISKS, st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_without_a_budget_the_promise_holds_at_every_n(risk: float, rollouts: int) -> None:
    account = RiskAccount(risk)
    for _ in range(rollouts):
        account.book(account.permits(), account.permits())
        assert account.violations <= risk * account.n + account.loan + 1.0


def test_without_violations_nothing_is_refused_and_gamma_stays() -> None:
    account = RiskAccount(0.05, 100)
    for _ in range(100):
        assert account.permits()
        assert account.gamma(0.95) == 0.95
        account.book(False, True)


def test_an_empty_account_lowers_gamma_and_fills_again() -> None:
    account = RiskAccount(0.05, 100)
    for _ in range(3):
        account.book(True, True)
    assert not account.permits()
    assert account.gamma(0.5) == pytest.approx(0.15)
    assert account.income == pytest.approx(0.025)
    rollouts = 0
    while not account.permits():
        account.book(False, False)
        rollouts += 1
    assert 20 < rollouts < 40


def test_a_careless_gamma_ends_with_the_first_violation_and_a_sensible_one_shrinks_as_the_account_does() -> None:
    account = RiskAccount(0.05, 100)
    assert (account.gamma(0.95), account.gamma(0.4)) == (0.95, 0.4)
    account.book(True, True)
    share = account.balance / account.loan
    assert 0.6 < share < 0.62
    assert account.gamma(0.95) == account.gamma(0.6) == pytest.approx(0.6 * share)
    assert account.gamma(0.4) == pytest.approx(0.4 * share)


def test_risk_0_lends_nothing_and_the_first_violation_ends_novelty() -> None:
    account = RiskAccount(0.0, 100)
    assert account.permits()
    assert not account.permits(pending=1)
    account.book(True, True)
    assert not account.permits()
    for _ in range(1000):
        account.book(False, False)
    assert not account.permits()


def test_a_run_that_goes_on_after_its_budget_earns_as_before() -> None:
    account = RiskAccount(0.05, 10)
    for _ in range(200):
        account.book(account.permits(), account.permits())
        assert account.violations <= account.limit
    assert account.violations == 10


def test_the_figures_are_those_of_the_formulas() -> None:
    assert RiskAccount(0.1).loan == pytest.approx(5.0), "without a budget the loan is that of 100 rollouts"
    account = RiskAccount(0.05, 4)
    for violated, novel in ((False, True), (True, True), (False, False), (False, True)):
        account.book(violated, novel)
    assert account.rate == pytest.approx((1 + 20 * 0.05) / (3 + 20)), "by what was seen of novel policies alone"
    assert account.income == pytest.approx(0.05), "the loan is paid back by the end of the budget"
