"""LogEI with a spherical linear kernel: a linear model after an inverse stereographic projection (arXiv 2512.00170).

    x' = (x - 1/2) / l_i / a,   z = [2 x', |x'|^2 - 1] / (1 + |x'|^2),   k(x, x~) = b_0 + b_1 z . z~

with a lengthscale l_i for each dimension (BoTorch's dimension-scaled prior), a such that the box's corner lies on the
unit sphere, and (b_0, b_1) a softmax: few parameters, made for as many data as dimensions. Noise: LogNormal(-4, 1).
Everything else (design, acquisition and its search) is logei.py's. A test holds the kernel against the formula,
computed point by point, and that the projected points have length 1.
"""

from __future__ import annotations

import math
from typing import Any

from crbo_ros.methods.logei import LogEI, import_botorch


def make_kernel(dim: int) -> Any:
    """The kernel as a module of gpytorch's."""
    import gpytorch

    _, torch = import_botorch()

    class SphericalLinear(gpytorch.kernels.Kernel):  # type: ignore[misc]
        """See the file's docstring."""

        has_lengthscale = True

        def __init__(self) -> None:
            prior = gpytorch.priors.LogNormalPrior(math.sqrt(2.0) + 0.5 * math.log(dim), math.sqrt(3.0))
            constraint = gpytorch.constraints.GreaterThan(2.5e-2, transform=None, initial_value=prior.mode)
            super().__init__(ard_num_dims=dim, lengthscale_prior=prior, lengthscale_constraint=constraint)
            self.register_parameter("share", torch.nn.Parameter(torch.zeros(1)))  # log b_1 / b_0

        def project(self, x: Any) -> Any:
            corner = (0.5 / self.lengthscale).norm(dim=-1, keepdim=True)
            x = (x - 0.5) / self.lengthscale / corner
            square = x.square().sum(-1, keepdim=True)
            return torch.cat([2.0 * x, square - 1.0], dim=-1) / (1.0 + square)

        def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> Any:
            b_1 = torch.sigmoid(self.share)
            z1, z2 = self.project(x1), self.project(x2)
            product = (z1 * z2).sum(-1) if diag else z1 @ z2.transpose(-1, -2)
            return (1.0 - b_1) + b_1 * product

    return SphericalLinear()


class LinearBO(LogEI):
    """Settings: those of logei."""

    name = "linear_bo"

    def _parts(self) -> dict[str, Any]:
        import gpytorch

        prior = gpytorch.priors.LogNormalPrior(-4.0, 1.0)
        constraint = gpytorch.constraints.GreaterThan(1e-4, transform=None, initial_value=prior.mode)
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=prior, noise_constraint=constraint)
        return {"covar_module": make_kernel(self.space.dim).double(), "likelihood": likelihood.double()}
