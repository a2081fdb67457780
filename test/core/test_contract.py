"""The contract: who may run, what is counted, and that an optimizer that listens gets its work done."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbo_ros.core import CRBO, Space
from crbo_ros.core.bound import Beliefs, believe
from crbo_ros.core.contract import EMPTY, Contract, Executed, Terms
from crbo_ros.core.gaussian_process import GaussianProcess
from crbo_ros.core.hyperparameters import default_hyperparameters
from crbo_ros.core.kernels import kernel
from crbo_ros.errors import Exhausted, InvalidInput

X0 = np.array([0.5, 0.5])


def begun(start: tuple[float, ...] = (1.0,), **terms: Any) -> Contract:
    contract = Contract(Terms(**{"j_min": 0.5, "budget": 100, **terms}), X0)
    for value in start:
        contract.add(Executed(X0, value))
    return contract


def beliefs(contract: Contract) -> Beliefs:
    """Without a model: the returns themselves."""
    known = [rollout for rollout in contract.rollouts if math.isfinite(rollout.value)]
    y = contract.clipped(np.array([rollout.value for rollout in known]))
    return Beliefs(np.array([rollout.x for rollout in known]).reshape(-1, 2), y, np.zeros(len(y)), 0.0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([0.0, 0.01, 0.05, 0.2]),
    st.integers(3, 40),
    st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from([-5.0, 0.49, 0.5, 2.0, math.nan])), max_size=60
    ),
)
def test_whatever_is_asked_for_and_whatever_comes_back_novel_policies_fall_at_most_as_often_as_promised(
    risk: float, budget: int, sequence: list[tuple[int, int, float]]
) -> None:
    """The optimizer lies: it asks for any policy, proven, fallen or novel, and never listens."""
    contract, fallen = begun(risk=risk, budget=budget, lipschitz=0.1 if risk == 0.0 else None), 0
    for i, j, value in sequence:
        x = np.array([i, j]) / 7.0
        judgement = contract.judge(x, beliefs(contract))
        if judgement.permitted:
            fallen += judgement.rule == "bound" and not value >= 0.5
            contract.add(Executed(x, value, "" if math.isfinite(value) else "no return"))
        else:
            contract.add(Executed(X0, 1.0))
        if risk:
            assert fallen == contract.account.novel_violations <= contract.account.limit
        else:
            assert fallen <= 1


def test_the_start_is_the_mean_of_its_rollouts_and_two_that_agree_are_enough() -> None:
    contract = Contract(Terms(j_min_drop=0.5), X0)
    assert contract.waits_for_start
    assert contract.wants_start()
    assert not contract.wants_start(under_way=3)
    contract.add(Executed(X0, 1.0))
    assert contract.wants_start()
    contract.add(Executed(X0, 1.004))
    assert not contract.wants_start()
    assert contract.threshold == pytest.approx(0.5 * 1.002)
    other = begun((1.0, 1.3))
    assert other.wants_start()
    other.add(Executed(np.array([0.5, 0.6]), 1.0))
    assert not other.wants_start(), "another policy ran already"
    other.add(Executed(X0, 9.0))
    assert (other.J0, other.J0_spread) == pytest.approx((1.15, np.std([1.0, 1.3], ddof=1)))


def test_a_threshold_within_theta_0s_own_noise_is_refused_with_one_that_could_be_kept() -> None:
    contract = Contract(Terms(j_min_drop=0.1), X0)
    for value in (1.0, 0.6, 1.2):
        contract.add(Executed(X0, value))
    said = contract.impossible
    assert "fell below J_min = 0.84 in 1 of its 3 start rollouts (1, 0.6, 1.2)" in said
    kept = float(said.split("j_min ")[1].split()[0])
    contract.change(Terms(j_min=kept))
    assert contract.impossible == ""


def test_the_contract_is_refused_where_theta_0s_rate_on_record_exceeds_the_risk_whenever_its_rollouts_ran() -> None:
    contract = begun((1.0, 1.0, 1.0))
    other = np.array([0.5, 0.6])
    contract.add(Executed(other, 0.9))
    for _ in range(15):
        contract.add(Executed(X0, 1.0))
    contract.add(Executed(X0, 0.4))  # 1 of 19 is more than 5 %
    said = contract.impossible
    assert "fell below J_min = 0.5 in 1 of its 19 rollouts on record, which is more than the risk of 0.05 (0.4)" in said
    assert contract.judge(np.array([0.5, 0.61]), beliefs(contract)).rule == "theta_0 falls"
    assert contract.judge(other, beliefs(contract)).permitted, "what is proven may run all the same"
    kept = float(said.split("j_min ")[1].split()[0])
    assert kept < 0.4
    contract.change(Terms(j_min=kept, budget=100))
    assert contract.impossible == ""
    contract.change(Terms(j_min=0.5, risk=0.1, budget=100))
    assert contract.impossible == "", "with a larger risk it can be kept"
    contract.change(Terms(j_min=0.5, budget=100))
    contract.add(Executed(X0, 1.0))  # 1 of 20
    assert contract.impossible == ""
    contract.report(0, "reported: it scraped the table")
    assert "broke it in 1 of its 3 start rollouts (reported: it scraped" in contract.impossible


def test_attached_rollouts_of_theta_0_count_towards_its_rate_before_anything_moves() -> None:
    for good, refused in ((18, True), (19, False)):
        optimizer = make(j_min=-0.5)
        for value in (1.0,) * good + (-3.0,):
            optimizer.attach(optimizer.theta_0, value)
        if refused:
            with pytest.raises(Exhausted, match="in 1 of its 19 rollouts on record"):
                optimizer.ask()
        else:
            assert optimizer.ask().kind == "start"


def test_the_books_are_a_function_of_terms_and_records() -> None:
    rng, contract = np.random.default_rng(3), begun()
    for _ in range(30):
        contract.add(Executed(rng.random(2), float(rng.normal(0.8, 0.3)), worst_case=float(rng.normal(0.4, 0.1))))
    again = begun()
    for rollout in contract.rollouts[1:]:
        again.add(rollout)
        again.account.permits()  # counting in between changes nothing
    assert vars(again.account) == vars(contract.account)
    assert (again.lipschitz, again.lipschitz_shown) == (contract.lipschitz, contract.lipschitz_shown)
    contract.change(Terms(j_min=-9.0, budget=100))
    assert contract.account.violations == 0


def test_what_is_refused_is_steered_and_where_nothing_passes_the_proven_policy_runs_again() -> None:
    contract = begun(lipschitz=5.0)
    contract.add(Executed(np.array([0.5, 0.6]), 1.2))  # L begins with 5 / 3: the user's own is the larger one
    x, why = contract.steer(np.array([0.5, 0.95]), beliefs(contract))
    assert why.startswith("steered to 0.3 of the way")
    assert contract.judge(x, beliefs(contract)).permitted
    assert contract.feasible(np.array([[0.5, 0.61], [0.5, 0.95]]), beliefs(contract)).tolist() == [True, False]
    for k in range(4):
        contract.add(Executed(np.array([0.5, 0.601 + 0.001 * k]), -1.0))
    x, why = contract.steer(np.array([0.5, 0.6001]), beliefs(contract))
    assert (x.tolist(), EMPTY in why) == ([0.5, 0.6], True)
    assert contract.gamma(0.5) == pytest.approx(0.15)


def test_a_fall_is_no_deeper_for_the_model_than_the_threshold_is_below_the_start() -> None:
    assert begun().clipped(np.array([-1e9, 0.7])).tolist() == [0.0, 0.7]
    assert Contract(Terms(), X0).clipped(np.array([-1e9])).tolist() == [-1e9]


# -- the optimizer that listens ----------------------------------------------------------------------------


def cliff(theta: np.ndarray) -> float:
    """A hill full of cliffs that no model sees coming: one policy in five falls."""
    hill = 1.0 - float(np.sum((theta - 0.35) ** 2))
    return hill if int(1e6 * abs(theta[0])) % 5 else -20.0 + hill


def play(optimizer: CRBO, function: Callable[[np.ndarray], float], episodes: int) -> None:
    while optimizer.n < episodes:
        proposal = optimizer.ask()
        optimizer.tell(proposal.id, function(proposal.theta))


def make(**settings: Any) -> CRBO:
    d = 4
    return CRBO(Space(np.full(d, -1.0), np.full(d, 1.0)), np.full(d, 0.100001), seed=5, **{"gamma": 0.9, **settings})


def test_the_optimizer_keeps_the_contract_by_itself_among_cliffs() -> None:
    free, bound = make(), make(j_min_drop=0.5, budget=60)
    for optimizer in (free, bound):
        play(optimizer, cliff, 60)
    fallen = [sum(value < -1.0 for value in o.data()[1]) for o in (free, bound)]
    assert fallen[0] > 3
    assert fallen[1] <= 3 == math.ceil(0.05 * 60)
    assert float(np.mean(bound.data()[1])) > float(np.mean(free.data()[1]))


def test_theta_0_runs_first_as_often_as_the_contract_wants_and_the_design_is_not_shortened() -> None:
    optimizer = make(j_min_drop=0.5)
    rng = np.random.default_rng(0)
    kinds = []
    for _ in range(6):
        proposal = optimizer.ask()
        kinds.append(proposal.kind)
        optimizer.tell(proposal.id, cliff(proposal.theta) + 0.1 * rng.standard_normal())
    assert kinds[:4] == ["start"] * 3 + ["initial"]
    assert optimizer.n_init == sum(kind == "initial" for kind in kinds) + 1


def test_a_proven_policy_is_repeated_to_the_last_bit_after_a_monitor_refused_novelty() -> None:
    optimizer = make(j_min=-50.0)
    play(optimizer, cliff, 8)
    optimizer.veto(optimizer.ask().id, f"{EMPTY}: by the monitor's own data")
    proposal = optimizer.ask()
    assert proposal.kind == "proven"
    assert any(np.array_equal(proposal.theta, trial.proposal.theta) for trial in optimizer.trials[:8])
    optimizer.tell(proposal.id, cliff(proposal.theta))
    assert optimizer.ask().kind not in ("proven", "steered")


def test_a_restored_optimizer_carries_on_with_the_same_contract_bit_for_bit() -> None:
    optimizer = make(j_min_drop=0.5, budget=40)
    play(optimizer, cliff, 20)
    optimizer.mark(7, "reported: it scraped the table")
    optimizer.configure(risk=0.1)
    again = make(j_min_drop=0.5, budget=40)
    again.restore(optimizer.state())
    assert vars(again.contract.account) == vars(optimizer.contract.account)
    for _ in range(3):
        a, b = optimizer.ask(), again.ask()
        assert (a.theta.tobytes(), a.worst_case, a.gamma) == (b.theta.tobytes(), b.worst_case, b.gamma)
        optimizer.tell(a.id, cliff(a.theta))
        again.tell(b.id, cliff(b.theta))


def test_optimizer_and_monitor_agree_on_the_account_and_nearly_on_the_bound() -> None:
    optimizer = make(j_min_drop=0.5, budget=40)
    own = GaussianProcess(kernel("matern52"), 4, default_hyperparameters(4))
    contract = Contract(Terms(j_min_drop=0.5, budget=40), optimizer.space.to_unit(optimizer.theta_0))
    refused = 0
    while optimizer.n < 40:
        proposal = optimizer.ask()
        x = optimizer.space.to_unit(proposal.theta)
        X, y = np.array([r.x for r in contract.rollouts]).reshape(-1, 4), [r.value for r in contract.rollouts]
        judgement = contract.judge(x, believe(own, X, contract.clipped(np.array(y))))
        if not judgement.permitted:
            refused += 1
            optimizer.veto(proposal.id, judgement.reason)
            continue
        optimizer.tell(proposal.id, value := cliff(proposal.theta))
        contract.add(Executed(x, value, worst_case=judgement.worst_case))
        assert vars(contract.account) == vars(optimizer.contract.account)
    assert refused <= 4


def test_a_contract_that_theta_0_breaks_ends_the_run_with_the_reason_until_somebody_chooses_another() -> None:
    optimizer = make(j_min_drop=0.1)
    for value in (1.0, 0.5, 1.2):
        optimizer.tell(optimizer.ask().id, value)
    with pytest.raises(Exhausted, match="theta_0 itself fell below"):
        optimizer.ask()
    optimizer.configure(j_min_drop=0.9)
    assert optimizer.ask().kind == "initial"


@pytest.mark.parametrize(
    ("options", "name"),
    [({"risk": -0.1}, "risk"), ({"risk": 2.0}, "risk"), ({"j_min_drop": -0.1}, "j_min_drop"),
     ({"budget": -1}, "budget"), ({"start_rollouts": 0}, "start_rollouts"), ({"risk": math.nan}, "risk")],
)  # fmt: skip
def test_terms_that_make_no_sense_are_refused_by_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        make(**options)
