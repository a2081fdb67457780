"""The first points: on the sphere of radius r0 around theta_0 (paper's appendix, "Initial Design").

Outside the box a point is neither clipped (that would pile points onto the faces and shorten the step) nor rejected for
ever (theta_0 may sit in a corner of 500 dimensions): a coordinate that would leave the box has its sign flipped, which
keeps the radius and, the sphere being symmetric, the uniform law over its part inside the box. Only a coordinate with
no room on either side is shortened.
"""

from __future__ import annotations

import math

import numpy as np

from crbo_ros.core.kernels import Array


def size(dim: int, most: int | None = None) -> int:
    """How many first points, theta_0 included: ceil(sqrt d) (the paper's), or `most` if that is less."""
    paper = math.ceil(math.sqrt(dim))
    return paper if most is None else min(paper, most)


def directions(count: int, dim: int, rng: np.random.Generator, orthogonal: bool) -> Array:
    """Unit vectors (count, dim), uniform on the sphere each; mutually orthogonal, `dim` at a time, if asked for."""
    u = rng.standard_normal((count, dim))
    if orthogonal:
        for i in range(0, count, dim):
            block, r = np.linalg.qr(u[i : i + dim].T)
            u[i : i + dim] = (block * np.sign(np.diagonal(r))).T  # the sign makes the law Haar's
    lengths: Array = np.linalg.norm(u, axis=1, keepdims=True)
    return u / lengths


def on_sphere(centre: Array, direction: Array, radius: float) -> Array:
    """centre (d,) + radius * direction (d,), brought into the unit box by flipping signs."""
    step = radius * direction
    leaves = (centre + step < 0.0) | (centre + step > 1.0)
    fits_flipped = (centre - step >= 0.0) & (centre - step <= 1.0)
    step = np.where(leaves & fits_flipped, -step, step)
    return np.clip(centre + step, 0.0, 1.0)
