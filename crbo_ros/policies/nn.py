"""A 2 x 64 tanh network whose last layer is the policy's parameter vector theta; the rest is frozen.

theta = the last layer's weight matrix row-major (n_out, n_hidden), then its n_out biases: 65 numbers for one output.
Inference is compiled (crbo_ros/compiled.py) and needs no torch. Weights live in a small .npz, without pickles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros import checks
from crbo_ros.compiled import network
from crbo_ros.core.space import as_vector
from crbo_ros.errors import InvalidInput

Array = NDArray[np.float64]
ARRAYS = ("w1", "b1", "w2", "b2", "w3", "b3", "input_offset", "input_scale")


class NNPolicy:
    """y = W3 tanh(W2 tanh(W1 ((x - offset) * scale) + b1) + b2) + b3, weights stored as (n_in, n_out)."""

    def __init__(self, arrays: Mapping[str, ArrayLike], meta: dict[str, Any] | None = None) -> None:
        missing = [name for name in ARRAYS[:6] if name not in arrays]
        if missing:
            raise InvalidInput(f"policy: the arrays {', '.join(missing)} are missing")
        take = {name: np.ascontiguousarray(arrays[name], dtype=np.float64) for name in ARRAYS if name in arrays}
        n_in = take["w1"].shape[0]
        self.input_offset = take.get("input_offset", np.zeros(n_in))
        self.input_scale = take.get("input_scale", np.ones(n_in))
        self.w1, self.b1, self.w2, self.b2 = take["w1"], take["b1"], take["w2"], take["b2"]
        self.w3, self.b3 = take["w3"].copy(), take["b3"].copy()
        self.meta = dict(meta or {})
        self._check_shapes()
        self.n_in, self.n_out = n_in, len(self.b3)
        self.n_weights = self.w3.size + self.b3.size
        self._hidden1, self._hidden2 = np.empty(len(self.b1)), np.empty(len(self.b2))

    def _check_shapes(self) -> None:
        n_in, h1, h2, n_out = len(self.input_scale), len(self.b1), len(self.b2), len(self.b3)
        wanted = {"w1": (n_in, h1), "w2": (h1, h2), "w3": (h2, n_out), "input_offset": (n_in,), "input_scale": (n_in,)}
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array.shape != shape:
                raise InvalidInput(f"policy: {name} has shape {array.shape}, the other layers need {shape}")
        for name in ARRAYS:
            if not np.all(np.isfinite(getattr(self, name))):
                raise InvalidInput(f"policy: {name} has an entry that is not finite")
        if not np.all(self.input_scale != 0.0):
            raise InvalidInput("policy: input_scale must not be 0: nothing would get in")

    def get_weights(self) -> Array:
        """theta (n_weights,): a copy of the last layer, its weights row-major, then its biases."""
        return np.concatenate([self.w3.T.ravel(), self.b3])

    def set_weights(self, theta: ArrayLike) -> None:
        """Put theta in place of the last layer; InvalidInput (and nothing changed) unless finite and of that length."""
        theta = as_vector(theta, "theta", self.n_weights)
        self.w3 = np.ascontiguousarray(theta[: self.w3.size].reshape(self.n_out, -1).T)
        self.b3 = theta[self.w3.size :].copy()

    def layers(self) -> tuple[Array, Array, Array, Array, Array, Array]:
        """(w1, b1, w2, b2, w3, b3), as the compiled functions take them."""
        return self.w1, self.b1, self.w2, self.b2, self.w3, self.b3

    def __call__(self, x: ArrayLike) -> Array:
        """Inputs (n_in,) -> outputs (n_out,)."""
        inputs = (np.asarray(x, dtype=np.float64) - self.input_offset) * self.input_scale
        outputs = np.empty(self.n_out)
        network(inputs, *self.layers(), self._hidden1, self._hidden2, outputs)
        return outputs

    def save(self, path: Path) -> None:
        """Write the arrays and `meta` (as JSON text) to an .npz."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        np.savez_compressed(path, meta=np.array(json.dumps(self.meta)), **arrays)

    @classmethod
    def load(cls, path: Path) -> NNPolicy:
        """Read what `save` wrote; InvalidInput with the file's name if it is something else."""
        try:
            file = checks.load_arrays(path)
            meta = checks.parse_json(str(file["meta"]), "meta") if "meta" in file else {}
            return cls({name: file[name] for name in ARRAYS if name in file}, meta)
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise InvalidInput(f"policy file {path}: {str(error).removeprefix(f'{path}: ')}") from None
