"""The closed form is the Gaussian process that gpytorch computes.

gpytorch's values are recorded (`./crbo shell python test/core/test_gaussian_process.py` records them anew, where torch
is installed), so that quick tests need no torch; the slow tests compute them again.
"""

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core import CRBO, Space
from crbo_ros.core.gaussian_process import GRID, GaussianProcess, Standardizer
from crbo_ros.core.hyperparameters import default_hyperparameters, paper_hyperparameters
from crbo_ros.core.kernels import KERNELS, kernel, squared_distances
from crbo_ros.core.settings import RECIPES
from crbo_ros.errors import InvalidInput

ORACLE = Path(__file__).with_name("recorded_gpytorch.json")
CASES = [(name, ard) for name in KERNELS for ard in (False, True)]


def data(n: int = 20, d: int = 4, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.sin(5.0 * X).sum(1) + 0.1 * rng.standard_normal(n), rng.random((7, d))


def central_difference(function: Any, x: Any, h: float = 1e-6) -> Any:
    return np.array([(function(x + h * e) - function(x - h * e)) / (2.0 * h) for e in np.eye(len(x))])


def squares(model: Any, X: Any) -> Any:
    return squared_distances(X, X)


@pytest.mark.parametrize(("name", "ard"), CASES)
def test_log_posterior_gradient_is_its_derivative(name: Any, ard: Any) -> None:
    X, y, _ = data()
    model = GaussianProcess(kernel(name), 4, default_hyperparameters(4), ard=ard)
    h = model.h + 0.3 * np.random.default_rng(1).standard_normal(len(model.h))
    _, gradient = model.log_posterior(h, squares(model, X), X, y)
    numeric = central_difference(lambda v: model.log_posterior(v, squares(model, X), X, y)[0], h)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "ard"), CASES)
def test_posterior_gradients_are_derivatives(name: Any, ard: Any) -> None:
    X, y, P = data()
    model = GaussianProcess(kernel(name), 4, default_hyperparameters(4), ard=ard)
    model.condition(X, y)
    mean, variance, d_mean, d_variance = model.posterior_gradient(P[0])
    m, v = model.posterior(P[:1])
    np.testing.assert_allclose([mean, variance], [m[0], v[0]], rtol=1e-9)
    numeric = central_difference(lambda x: np.array([v[0] for v in model.posterior(x[None])]), P[0])
    np.testing.assert_allclose(d_mean, numeric[:, 0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(d_variance, numeric[:, 1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.mean_gradients(P)[0], d_mean, rtol=1e-9)


def test_rank_one_update_equals_conditioning_anew() -> None:
    X, y, P = data()
    grown, whole = (GaussianProcess(kernel("matern52"), 4, default_hyperparameters(4)) for _ in range(2))
    grown.condition(X[:15], y[:15])
    for x, value in zip(X[15:], y[15:], strict=True):
        grown.add(x, value)
    whole.condition(X, y)
    for a, b in zip(grown.posterior(P), whole.posterior(P), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_duplicate_points_without_noise_are_survived() -> None:
    model = GaussianProcess(kernel("se"), 2, default_hyperparameters(2))
    model.h[-1] = np.log(1e-300)
    X = np.full((5, 2), 0.4)
    model.condition(X, np.zeros(5))
    mean, variance = model.posterior(X)
    assert np.all(np.isfinite(mean))
    assert np.all(variance < 1e-4)


@pytest.mark.parametrize("centering", ["max", "min", "mean", "none"])
def test_outputs_are_undone_to_the_grid(centering: str) -> None:
    y = np.array([3.0, 5.0, -2.0])
    outputs = Standardizer.of(y, centering)
    np.testing.assert_allclose([outputs.back(t) for t in outputs.to(y)], y, atol=outputs.scale * GRID)


@pytest.mark.parametrize("y", [np.zeros(3), np.full(3, 7.0), np.array([1e-90]), np.array([1e99, -1e99])])
def test_outputs_scale_is_usable_for_any_returns(y: Any) -> None:
    outputs = Standardizer.of(y)
    assert outputs.scale > 0.0
    assert np.all(np.isfinite(outputs.to(y)))


def gpytorch_says(name: str, ard: bool) -> dict[str, Any]:
    """What gpytorch computes on the same data: likelihood, gradients, posterior, the optimum and a restart."""
    from crbo_ros.core.gpytorch_process import GPyTorch

    X, y, P = data()
    model = GPyTorch(name, 4, paper_hyperparameters(4), ard=ard)
    model.condition(X, y)
    loss = model.log_posterior()
    loss.backward()
    named = {key.split(".")[-1]: p.grad.numpy().ravel() for key, p in model.model.named_parameters()}
    said: dict[str, Any] = {"log_posterior": float(loss.detach())}
    said["gradient"] = np.concatenate([named["raw_lengthscale"], named["raw_outputscale"], named["raw_noise"]])
    said["mean"], said["variance"] = model.posterior(P)
    said["gradients"] = np.concatenate([np.ravel(part) for part in model.posterior_gradient(P[0])])
    said["covariance"] = model.covariance(P)
    said["fit"] = model.fit(X, y)
    said["optimum"], said["lengthscales"] = float(model.log_posterior().detach()), model.lengthscales
    model.restart(0.3)
    said["second_fit"] = model.fit(X, y)
    return {key: np.asarray(value).tolist() for key, value in said.items()}


@pytest.mark.parametrize(("name", "ard"), CASES)
class TestAgainstGpytorch:
    """Likelihood, gradients, posterior and MAP optimum at 1e-8 relative, against gpytorch's recorded values."""

    @pytest.fixture
    def said(self, name: str, ard: bool) -> dict[str, Any]:
        return {key: np.array(value) for key, value in json.loads(ORACLE.read_text())[f"{name} {ard}"].items()}

    @pytest.fixture
    def ours(self, name: str, ard: bool) -> GaussianProcess:
        return GaussianProcess(kernel(name), 4, paper_hyperparameters(4), ard=ard)

    @pytest.mark.slow  # needs torch
    def test_gpytorch_still_says_what_is_recorded(self, said: dict[str, Any], name: str, ard: bool) -> None:
        for key, value in gpytorch_says(name, ard).items():
            loose = key in ("fit", "optimum", "lengthscales", "second_fit")  # ends of searches
            np.testing.assert_allclose(value, said[key], rtol=1e-4 if loose else 1e-9, atol=1e-11, err_msg=key)

    def test_log_posterior_and_its_gradient(self, ours: GaussianProcess, said: dict[str, Any]) -> None:
        X, y, _ = data()
        value, gradient = ours.log_posterior(ours.h, squares(ours, X), X, y)
        np.testing.assert_allclose(value, said["log_posterior"], rtol=1e-8)
        largest = np.max(np.abs(said["gradient"]))
        np.testing.assert_allclose(gradient, said["gradient"], rtol=1e-8, atol=1e-8 * largest)

    def test_posterior_and_its_gradients(self, ours: GaussianProcess, said: dict[str, Any]) -> None:
        X, y, P = data()
        ours.condition(X, y)
        gradients = np.concatenate([np.ravel(part) for part in ours.posterior_gradient(P[0])])
        mean, variance = ours.posterior(P)
        for value, key in (
            (mean, "mean"),
            (variance, "variance"),
            (gradients, "gradients"),
            (ours.covariance(P), "covariance"),
        ):
            np.testing.assert_allclose(value, said[key], rtol=1e-8, atol=1e-10, err_msg=key)

    def test_map_optimum_and_a_restart_at_the_start_values_with_the_given_noise(
        self, ours: GaussianProcess, said: dict[str, Any]
    ) -> None:
        X, y, _ = data()
        start = ours.lengthscales.copy()
        first = ours.fit(X, y)
        value, _ = ours.log_posterior(ours.h, squares(ours, X), X, y)
        np.testing.assert_allclose(value, said["optimum"], rtol=1e-8)
        np.testing.assert_allclose(ours.lengthscales, said["lengthscales"], rtol=1e-4)
        ours.restart(0.3)
        np.testing.assert_allclose(ours.noise_variance, 0.3)
        np.testing.assert_allclose(ours.lengthscales, start)
        np.testing.assert_allclose([first, ours.fit(X, y)], [said["fit"], said["second_fit"]], rtol=1e-4)


@pytest.mark.slow  # needs torch
class TestAKernelOfTheUsersOwn:
    """A gpytorch kernel with its own priors and constraints (softplus coordinates, not logarithms)."""

    @pytest.fixture
    def own(self) -> Any:
        import gpytorch

        kernels, Gamma = gpytorch.kernels, gpytorch.priors.GammaPrior
        base = kernels.MaternKernel(2.5, lengthscale_prior=Gamma(3.0, 6.0))
        return kernels.ScaleKernel(base, outputscale_prior=Gamma(2.0, 0.15))

    def test_has_the_map_optimum_of_the_closed_form_with_the_same_priors(self, own: Any) -> None:
        from crbo_ros.core.gpytorch_process import GPyTorch

        hyper = replace(paper_hyperparameters(4), lengthscale_bounds=(1e-3, 1e2), start=(0.6931, 0.6931, 0.0025))
        ours, theirs = GaussianProcess(kernel("matern52"), 4, hyper), GPyTorch("matern52", 4, hyper, kernel=own)
        X, y, P = data()
        np.testing.assert_allclose(ours.fit(X, y), theirs.fit(X, y), rtol=1e-6)
        np.testing.assert_allclose(ours.lengthscales, theirs.lengthscales, rtol=1e-2)
        np.testing.assert_allclose(ours.signal_variance, theirs.signal_variance, rtol=2e-2)
        for a, b in zip(ours.posterior(P), theirs.posterior(P), strict=True):
            np.testing.assert_allclose(a, b, rtol=0.02, atol=0.02)

    def test_is_copied_and_what_the_user_fixed_is_not_fitted(self, own: Any) -> None:
        from crbo_ros.core.gpytorch_process import GPyTorch

        own.base_kernel.lengthscale = 0.3
        own.base_kernel.raw_lengthscale.requires_grad_(False)
        before = own.outputscale.item()
        model = GPyTorch("matern52", 4, paper_hyperparameters(4), kernel=own)
        X, y, _ = data()
        model.fit(X, 3.0 * y)
        np.testing.assert_allclose(model.lengthscales, 0.3, rtol=1e-6)  # single precision was the user's
        assert model.signal_variance != pytest.approx(before, rel=0.01)
        assert own.outputscale.item() == before

    def test_a_copy_of_the_model_is_conditioned_without_the_other(self, own: Any) -> None:
        from crbo_ros.core.gpytorch_process import GPyTorch

        model = GPyTorch("matern52", 4, paper_hyperparameters(4), kernel=own)
        X, y, P = data()
        model.condition(X, y)
        mean, _ = model.posterior(P)
        copy(model).condition(X[:3], y[:3])
        np.testing.assert_array_equal(model.posterior(P)[0], mean)

    def test_proposes_as_the_closed_form_does_where_the_model_is_the_same(self, own: Any) -> None:
        own.base_kernel.lengthscale, own.outputscale = 0.1, 1.0  # the paper preset's start values
        space = Space([-1.0, -1.0], [1.0, 1.0])
        few = replace(RECIPES["paper"], samples=128)
        runs = []
        for surrogate in ("closed_form", own):
            optimizer = CRBO(space, [0.4, 0.4], seed=1, preset="paper", recipe=few, surrogate=surrogate)
            for _ in range(5):
                proposal = optimizer.ask()
                optimizer.tell(proposal.id, -float(np.sum(proposal.theta**2)))
            runs.append(np.array([trial.proposal.theta for trial in optimizer.trials]))
        np.testing.assert_array_equal(runs[0][:2], runs[1][:2])
        np.testing.assert_allclose(runs[0][2], runs[1][2], atol=0.05)
        assert np.isfinite(optimizer.report()["lipschitz"])

    def test_with_given_hyperparameters_is_refused_by_name(self, own: Any) -> None:
        with pytest.raises(InvalidInput, match="hyperparameters: are a built-in kernel's"):
            CRBO(Space([0.0], [1.0]), [0.5], surrogate=own, hyperparameters=(0.1, 1.0, 0.01))
        with pytest.raises(InvalidInput, match="nor a gpytorch kernel"):
            CRBO(Space([0.0], [1.0]), [0.5], surrogate=print)


if __name__ == "__main__":
    ORACLE.write_text(json.dumps({f"{name} {ard}": gpytorch_says(name, ard) for name, ard in CASES}, indent=0) + "\n")
