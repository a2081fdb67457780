"""The same model in gpytorch: the way to a kernel of your own, and the reference that the closed form is tested by.

    kernel = ScaleKernel(PeriodicKernel(period_length_prior=GammaPrior(3.0, 6.0)))
    CRBO(space, theta_0, surrogate=kernel)

takes any gpytorch kernel over the unit box with its priors and constraints; a copy of it is fitted. What should stay
as it is, say so: `kernel.base_kernel.raw_lengthscale.requires_grad_(False)`. Returns are centred on the best one and
divided by their standard deviation, so that an outputscale of about 1 is natural; the noise has the preset's prior.
The kernel should be stationary with k(x, x) = sigma_f^2, since that is what the confidence region is measured against;
r0 and the Lipschitz constant's margin are those of the built-in `kernel` of the settings at your kernel's lengthscale.

surrogate="gpytorch" builds the named kernel with the preset's priors: the closed form's model, slower by one or two
orders of magnitude. Everything is float64 on the CPU.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import numpy as np
from scipy.optimize import minimize

from crbo_ros.core.hyperparameters import Flat, Gamma, Hyperparameters, Prior
from crbo_ros.core.kernels import Array
from crbo_ros.errors import InvalidInput, MissingDependency

try:
    import gpytorch
    import torch
except ImportError as error:
    raise MissingDependency("surrogate 'gpytorch' needs torch and gpytorch: pip install gpytorch") from error


def _prior(prior: Prior) -> Any:
    if isinstance(prior, Gamma):
        return gpytorch.priors.GammaPrior(prior.shape, prior.rate)
    if isinstance(prior, Flat):
        return None
    return _LogNormal(prior.median, prior.spread)


class _LogNormal(gpytorch.priors.Prior):  # type: ignore[misc, unused-ignore]
    """priors.LogNormal: a normal density over log v (gpytorch's LogNormalPrior has the Jacobian 1/v in it)."""

    def __init__(self, median: float, spread: float) -> None:
        super(gpytorch.priors.Prior, self).__init__(validate_args=False)
        self.median, self.spread = median, spread

    def log_prob(self, v: Any) -> Any:
        z = (torch.log(v) - math.log(self.median)) / self.spread
        return -0.5 * z * z - math.log(self.spread) - 0.5 * math.log(2.0 * math.pi)


def build_kernel(name: str, dim: int, hyper: Hyperparameters, ard: bool) -> Any:
    """The named kernel with the preset's priors, bounds and start values; raw parameters are logarithms."""
    options: dict[str, Any] = {
        "ard_num_dims": dim if ard else None,
        "lengthscale_prior": _prior(hyper.lengthscale),
        "lengthscale_constraint": _positive(),
    }
    kernels = gpytorch.kernels
    if name == "se":
        base = kernels.RBFKernel(**options)
    else:
        base = kernels.MaternKernel(1.5 if name == "matern32" else 2.5, **options)
    kernel = kernels.ScaleKernel(base, outputscale_prior=_prior(hyper.signal), outputscale_constraint=_positive())
    kernel = kernel.double()
    start = torch.tensor(hyper.start, dtype=torch.float64)
    kernel.base_kernel.lengthscale, kernel.outputscale = start[0], start[1]
    return kernel


def _positive() -> Any:
    """Log coordinates, as in the closed form."""
    return gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)


class _Model(gpytorch.models.ExactGP):  # type: ignore[misc, unused-ignore]
    def __init__(self, X: Any, y: Any, likelihood: Any, kernel: Any) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class GPyTorch:
    """The interface of gaussian_process.Surrogate around an exact GP of gpytorch."""

    def __init__(self, name: str, dim: int, hyper: Hyperparameters, *, ard: bool = False, kernel: Any = None) -> None:
        self.hyper, self.dim, self.fit_message = hyper, dim, ""
        self._limits = {"noise": hyper.noise_bounds}
        if kernel is None:
            kernel = build_kernel(name, dim, hyper, ard)
            self._limits |= {"lengthscale": hyper.lengthscale_bounds, "outputscale": hyper.signal_bounds}
        elif not isinstance(kernel, gpytorch.kernels.Kernel):
            raise InvalidInput(f"surrogate: {kernel!r} is neither 'closed_form' nor 'gpytorch' nor a gpytorch kernel")
        kernel = deepcopy(kernel).double()
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_prior=_prior(hyper.noise), noise_constraint=_positive()
        ).double()
        likelihood.noise = torch.tensor(hyper.start[2], dtype=torch.float64)
        self.X, self.y = np.zeros((0, dim)), np.zeros(0)
        empty = torch.zeros((1, dim), dtype=torch.float64)
        self.model = _Model(empty, empty[:, 0], likelihood, kernel)
        self._start = self.get_parameters()

    def __copy__(self) -> GPyTorch:
        """With a model of its own: conditioning the copy leaves this one alone."""
        twin = GPyTorch.__new__(GPyTorch)
        twin.__dict__ |= {**self.__dict__, "model": deepcopy(self.model)}
        return twin

    # -- hyperparameters --------------------------------------------------------------------------

    @property
    def lengthscales(self) -> Array:
        for module in self.model.covar_module.modules():
            if getattr(module, "has_lengthscale", False):
                return self._numpy(module.lengthscale).ravel()
        return np.ones(1)

    @property
    def signal_variance(self) -> float:
        """k(x, x), at the centre of the box."""
        with torch.no_grad():
            centre = torch.full((1, self.dim), 0.5, dtype=torch.float64)
            return float(self.model.covar_module(centre, diag=True)[0])

    @property
    def noise_variance(self) -> float:
        return float(self.model.likelihood.noise.detach())

    def _named(self) -> list[tuple[str, Any]]:
        """What is fitted, by name: without what the user has fixed (requires_grad_(False))."""
        return [(name, p) for name, p in sorted(self.model.named_parameters()) if p.requires_grad]

    def _raw(self) -> list[Any]:
        return [p for _, p in self._named()]

    def get_parameters(self) -> Array:
        return np.concatenate([self._numpy(p).ravel() for p in self._raw()])

    def set_parameters(self, parameters: Array) -> None:
        sizes = [p.numel() for p in self._raw()]
        if np.shape(parameters) != (sum(sizes),):
            raise InvalidInput(f"parameters: expected {sum(sizes)} numbers, got shape {np.shape(parameters)}")
        with torch.no_grad():
            for p, part in zip(self._raw(), np.split(np.asarray(parameters), np.cumsum(sizes)[:-1]), strict=True):
                p.copy_(torch.as_tensor(part, dtype=torch.float64).reshape(p.shape))

    def log_posterior(self) -> Any:
        """log p(y | X, h) + log p(h) as a differentiable scalar, at the parameters as they stand."""
        self.model.train()
        with self._exact():
            prior_draw = self.model(self.model.train_inputs[0])
            value = self.model.likelihood(prior_draw).log_prob(self.model.train_targets)
        for _, module, prior, closure, _ in self.model.named_priors():
            value = value + prior.log_prob(closure(module)).sum()
        return value

    def restart(self, noise_variance: float) -> None:
        """The parameters of the start, with this noise variance: for a fit from elsewhere."""
        self.set_parameters(self._start)
        self.model.likelihood.noise = torch.tensor(noise_variance, dtype=torch.float64)

    def fit(self, X: Array, y: Array, around: float = 0.0, max_iterations: int = 50) -> float:
        """MAP of y - around by L-BFGS-B over the raw parameters, started where they stand; then condition on (X, y).

        Returns the log posterior of the parameters, -inf if the fit failed (they stay as they were).
        """
        self._set_data(X, y - around)
        start = self.get_parameters()

        def negative(raw: Array) -> tuple[float, Array]:
            self.set_parameters(raw)
            self.model.zero_grad()
            try:
                loss = -self.log_posterior()
                loss.backward()
            except (RuntimeError, ValueError):  # not positive definite
                return 1e25, np.zeros_like(raw)
            return float(loss.detach()), np.concatenate([self._numpy(p.grad).ravel() for p in self._raw()])

        bounds = []
        for name, p in self._named():
            low, high = next((b for key, b in self._limits.items() if key in name), (0.0, 0.0))
            bounds += [(math.log(low), math.log(high)) if high else (None, None)] * p.numel()
        result = minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations, "ftol": 1e-9, "gtol": 1e-4},
        )
        fitted = bool(np.all(np.isfinite(result.x)) and result.fun < 1e24)
        self.set_parameters(result.x if fitted else start)
        self.condition(X, y)
        return -float(result.fun) if fitted else -math.inf

    # -- posterior --------------------------------------------------------------------------------

    def _set_data(self, X: Array, y: Array) -> None:
        self.X, self.y = np.array(X), np.array(y)
        self.model.set_train_data(torch.as_tensor(self.X), torch.as_tensor(self.y), strict=False)

    def condition(self, X: Array, y: Array) -> None:
        self._set_data(X, y)
        self.model.eval()

    def add(self, x: Array, y: float) -> None:
        self.condition(np.vstack([self.X, x]), np.append(self.y, y))

    def posterior(self, P: Array) -> tuple[Array, Array]:
        self.model.eval()
        with torch.no_grad(), self._exact():
            latent = self.model(torch.as_tensor(P))
            return self._numpy(latent.mean), np.maximum(self._numpy(latent.variance), 0.0)

    def posterior_gradient(self, x: Array) -> tuple[float, float, Array, Array]:
        self.model.eval()
        with self._exact():
            point = torch.tensor(x[None], dtype=torch.float64, requires_grad=True)
            latent = self.model(point)
            d_mean = torch.autograd.grad(latent.mean.sum(), point, retain_graph=True)[0]
            d_variance = torch.autograd.grad(latent.variance.sum(), point)[0]
        return (
            float(latent.mean.detach()),
            max(float(latent.variance.detach()), 0.0),
            self._numpy(d_mean)[0],
            self._numpy(d_variance)[0],
        )

    def mean_gradients(self, P: Array) -> Array:
        self.model.eval()
        with self._exact():
            points = torch.tensor(P, dtype=torch.float64, requires_grad=True)
            gradient = torch.autograd.grad(self.model(points).mean.sum(), points)[0]
        return self._numpy(gradient)

    def covariance(self, P: Array) -> Array:
        self.model.eval()
        with torch.no_grad(), self._exact():
            return self._numpy(self.model(torch.as_tensor(P)).covariance_matrix)

    def inverse(self, X: Array) -> Array:
        with torch.no_grad(), self._exact():
            K = self._numpy(self.model.covar_module(torch.as_tensor(X)).to_dense())
        return np.array(np.linalg.inv(K + self.noise_variance * np.eye(len(X))), dtype=np.float64)

    @staticmethod
    def _numpy(tensor: Any) -> Array:
        return np.array(tensor.detach().numpy(), dtype=np.float64)

    @staticmethod
    def _exact() -> Any:
        return gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)
