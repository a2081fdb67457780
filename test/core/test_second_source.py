"""Returns of another plant: a right source helps, a wrong one changes nothing, and caution knows of neither."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.core.crbo import CRBO
from crbo_ros.core.second_source import Informed
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput

DIM = 12
SPACE, THETA_0 = Space(-np.ones(DIM), np.ones(DIM)), np.zeros(DIM)
TOP = 0.3 * np.resize([1.0, -1.0, 1.0], DIM)


def value(theta: Any) -> float:
    return -float(np.sum((np.asarray(theta) - TOP) ** 2))


def source(sign: float = 1.0) -> tuple[Any, Any]:
    """40 returns of a plant whose best policy is elsewhere, and whose returns have other units; or mirrored."""
    thetas = np.random.default_rng(5).uniform(-0.5, 0.5, (40, DIM))
    return sign * thetas, [7.0 + 3.0 * value(theta + 0.1) for theta in thetas]


def play(given: tuple[Any, Any] | None, episodes: int = 20) -> CRBO:
    method = CRBO(SPACE, THETA_0, seed=4, j_min_drop=2.0, budget=episodes)
    if given is not None:
        method.inform(*given)
    for _ in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, value(proposal.theta))
    return method


def test_a_good_source_helps_and_a_mirrored_one_changes_nothing() -> None:
    plain, good, mirrored = play(None), play(source()), play(source(-1.0))
    assert np.mean(good.data()[1]) > np.mean(plain.data()[1]) + 0.1
    assert good.report()["second_source"] > 0.3
    assert mirrored.report()["second_source"] == 0.0
    assert np.array_equal(plain.data()[0], mirrored.data()[0])


def test_sigma_the_bound_the_contract_and_the_recommendation_know_nothing_of_it() -> None:
    good, own = play(source()), CRBO(SPACE, THETA_0, seed=4, j_min_drop=2.0, budget=20)
    for trial in good.trials:
        own.attach(trial.proposal.theta, trial.value)
    for each in (good, own):
        each.surrogate.set_parameters(good.surrogate.get_parameters())
        each.fit()
    P = np.random.default_rng(1).random((50, DIM))
    informed = good._informed()
    assert isinstance(informed, Informed)
    assert np.array_equal(informed.posterior(P)[1], good.surrogate.posterior(P)[1])
    assert good.beliefs is not None
    assert own.beliefs is not None
    assert np.allclose(good.beliefs.mean, own.beliefs.mean)
    assert not np.allclose(informed.posterior(P)[0], good.surrogate.posterior(P)[0])
    assert good.best().theta.tolist() == own.best().theta.tolist()  # type: ignore[union-attr]


def test_its_gradient_is_that_of_its_mean() -> None:
    good = play(source())
    model, x, h = good._informed(), np.full(DIM, 0.55), 1e-6
    gradient = [(model.posterior((x + h * e)[None])[0][0] - model.posterior((x - h * e)[None])[0][0]) / (2 * h)
                for e in np.eye(DIM)]  # fmt: skip
    assert np.allclose(model.posterior_gradient(x)[2], gradient, atol=1e-5)
    assert np.allclose(model.mean_gradients(x[None])[0], gradient, atol=1e-5)
    assert model.posterior_gradient(x)[0] == pytest.approx(float(model.posterior(x[None])[0][0]))


def test_too_little_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 3"):
        play(([THETA_0, THETA_0], [1.0, 2.0]))
    with pytest.raises(InvalidInput, match="outside"):
        play(([THETA_0 + 3.0] * 3, [1.0, 2.0, 3.0]))
