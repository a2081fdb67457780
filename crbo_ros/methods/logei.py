"""What people would pick today: BoTorch's SingleTaskGP with its dimension-scaled prior, and LogEI, in the whole box.

Hvarfner, Hellsten, Nardi 2024 (the prior: lengthscales grow with sqrt d) and Ament et al. 2023 (LogEI). Returns are
standardised; `noisy` integrates over the unknown best return (qLogNoisyExpectedImprovement, several times slower),
else the incumbent is the best posterior mean among the evaluated points. Initial design: theta_0, then a scrambled
Sobol sequence.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import qmc

from crbo_ros.core.gp_method import GPMethod, design_size
from crbo_ros.core.kernels import Array
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Best, Proposal, TrialStatus
from crbo_ros.errors import MissingDependency


def import_botorch() -> Any:
    try:
        import botorch
        import torch
    except ImportError:
        raise MissingDependency("this method needs BoTorch: pip install botorch") from None
    torch.set_num_threads(1)  # threads make problems of this size slower
    return botorch, torch


class LogEI(GPMethod):
    """Settings: n_init (theta_0 included), noisy, fit_iterations, restarts and raw_samples of the acquisition's search.

    The defaults are cheaper than BoTorch's own habits (10 restarts, 512 raw samples, fit_iterations 0: a fit from
    scratch to convergence), so that whole sweeps can be paid for.
    """

    name = "logei"

    def __init__(
        self,
        space: Space,
        theta_0: ArrayLike,
        *,
        seed: int = 0,
        n_init: int | None = None,
        noisy: bool = False,
        restarts: int = 2,
        raw_samples: int = 128,
        fit_iterations: int = 40,
    ) -> None:
        super().__init__(space, theta_0, seed=seed)
        import_botorch()
        self.n_init = design_size(n_init, space.dim)
        self.noisy, self.restarts, self.raw_samples = bool(noisy), int(restarts), int(raw_samples)
        self.fit_iterations = int(fit_iterations)
        self._model: Any = None

    def _next(self, id: int) -> Proposal:
        if self.n + len(self.pending) < self.n_init or not self._completed:
            power = max(1, math.ceil(math.log2(id + 1)))
            design = qmc.Sobol(self.space.dim, scramble=True, seed=self.rng(0)).random_base2(power)
            return self.proposal(id, design[id - 1], "initial", predict=False)
        _, torch = import_botorch()
        # a fork: the global generator, which BoTorch draws from, is as before afterwards
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(int(self.rng(1, id).integers(2**31)))
            self._model = self._fit_model()
            x = self._optimise(self._model)
            mean, sigma = self._predict(self._model, x[None])
        theta = self.space.from_unit(np.clip(x, 0.0, 1.0))
        return Proposal(id, theta, "acquisition", self.outputs.back(mean[0]), self.outputs.scale * sigma[0])

    def _parts(self) -> dict[str, Any]:
        """Of the model, where they are not BoTorch's own."""
        return {}

    def _fit_model(self) -> Any:
        from botorch import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.optim.fit import fit_gpytorch_mll_scipy
        from gpytorch.mlls import ExactMarginalLogLikelihood

        _, torch = import_botorch()
        X, y = self.model_data()
        train = torch.as_tensor(X), torch.as_tensor(y)[:, None]
        model = SingleTaskGP(*train, outcome_transform=None, **self._parts())  # the returns are standardised already
        if len(y) > 1:
            if (
                self._model is not None and self.fit_iterations
            ):  # from the last fit: some ten times fewer iterations than from BoTorch's start
                model.load_state_dict(self._model.state_dict())
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            mll.train()
            if self.fit_iterations:
                fit_gpytorch_mll_scipy(mll, options={"maxiter": self.fit_iterations})
            else:
                fit_gpytorch_mll(mll)
        model.eval()
        return model

    def _optimise(self, model: Any) -> Array:
        from botorch.acquisition.analytic import LogExpectedImprovement
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement
        from botorch.optim.optimize import optimize_acqf

        _, torch = import_botorch()
        X = model.train_inputs[0]
        pending = self.ended(TrialStatus.PENDING)
        if self.noisy or len(pending):
            out = torch.as_tensor(pending) if len(pending) else None
            acquisition: Any = qLogNoisyExpectedImprovement(model, X, X_pending=out, prune_baseline=True)
        else:
            with torch.no_grad():
                best = model.posterior(X).mean.max()
            acquisition = LogExpectedImprovement(model, best_f=best)
        d = self.space.dim
        x, _ = optimize_acqf(
            acquisition,
            bounds=torch.stack([torch.zeros(d, dtype=X.dtype), torch.ones(d, dtype=X.dtype)]),
            q=1,
            num_restarts=self.restarts,
            raw_samples=self.raw_samples,
            options={"maxiter": 50, "batch_limit": self.restarts, "sample_around_best": True},
        )
        return np.asarray(x[0].detach().numpy(), dtype=np.float64)

    @staticmethod
    def _predict(model: Any, X: Array) -> tuple[Array, Array]:
        _, torch = import_botorch()
        with torch.no_grad():
            posterior = model.posterior(torch.as_tensor(X))
            return posterior.mean[:, 0].numpy(), posterior.variance[:, 0].sqrt().numpy()

    def best(self) -> Best | None:
        """The evaluated policy with the best posterior mean under a model fitted to all returns."""
        if self.n < 2:
            return super().best()
        _, torch = import_botorch()
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(self.seed & 0x7FFFFFFF)
            mean, sigma = self._predict(self._fit_model(), self.data()[0])
        return self._recommend(mean, sigma, self.outputs)

    def report(self) -> dict[str, Any]:
        return {"n_init": self.n_init}
