"""A trained reinforcement-learning agent as a policy: frozen hidden layers, theta = the last one (the policy head).

    z      = clip((observation - offset) * scale, -input_clip, input_clip)
    h      = activation(... activation(z W1 + b1) ...), any number of hidden layers, weights stored as (n_in, n_out)
    y      = h W + b                                     theta: W row-major as (n_out, n_hidden), then b
    action = argmax y (greedy), or y clipped to the bounds (clip), or tanh(y) stretched to them (squash)

The files are those of policies/nn.py (w1, b1, w2, ..., input_offset, input_scale, meta as JSON; no pickles, no torch),
with any number of layers, and with what the agent's own library does around the network in `meta`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros import checks
from crbo_ros.core.space import as_vector
from crbo_ros.errors import InvalidInput

Array = NDArray[np.float64]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.where(x > 0.0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}
OUTPUTS = ("greedy", "clip", "squash")


class Agent:
    """`layers` = [(w1, b1), (w2, b2), ...], the last one is theta. `meta` is kept in the file for people."""

    def __init__(
        self,
        layers: Sequence[tuple[ArrayLike, ArrayLike]],
        *,
        output: str,
        low: ArrayLike = (),
        high: ArrayLike = (),
        activation: str = "tanh",
        input_offset: ArrayLike | None = None,
        input_scale: ArrayLike | None = None,
        input_clip: float = math.inf,
        meta: dict[str, Any] | None = None,
    ) -> None:
        if activation not in ACTIVATIONS or output not in OUTPUTS or not layers:
            raise InvalidInput(
                f"policy: {len(layers)} layers, activation {activation!r}, output {output!r}; there must be layers, "
                f"and known are {', '.join(ACTIVATIONS)} and {', '.join(OUTPUTS)}"
            )
        self.layers = [(np.array(w, dtype=np.float64), np.array(b, dtype=np.float64)) for w, b in layers]
        self.n_in, self.n_out = self.layers[0][0].shape[0], len(self.layers[-1][1])
        self.activation, self.output, self.input_clip = activation, output, float(input_clip)
        self.low, self.high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        self.input_offset = np.zeros(self.n_in) if input_offset is None else np.array(input_offset, dtype=np.float64)
        self.input_scale = np.ones(self.n_in) if input_scale is None else np.array(input_scale, dtype=np.float64)
        self.meta = dict(meta or {})
        self._check()
        self.n_weights = self.layers[-1][0].size + self.n_out

    def _check(self) -> None:
        width = self.n_in
        for i, (w, b) in enumerate(self.layers, start=1):
            if w.shape != (width, len(b)) or b.ndim != 1:
                raise InvalidInput(f"policy: w{i} has shape {w.shape} and b{i} {b.shape}, with {width} inputs")
            if not (np.all(np.isfinite(w)) and np.all(np.isfinite(b))):
                raise InvalidInput(f"policy: layer {i} has an entry that is not finite")
            width = len(b)
        if self.input_offset.shape != (self.n_in,) or self.input_scale.shape != (self.n_in,):
            raise InvalidInput(f"policy: input_offset and input_scale must have {self.n_in} entries")
        if not np.all(np.isfinite(self.input_offset)) or not np.all(np.isfinite(self.input_scale)):
            raise InvalidInput("policy: input_offset or input_scale has an entry that is not finite")
        if not np.all(self.input_scale != 0.0) or not self.input_clip > 0.0:
            raise InvalidInput("policy: input_scale must not be 0 and input_clip must be above 0: nothing would get in")
        if self.output != "greedy" and not (self.low.shape == self.high.shape == (self.n_out,)):
            raise InvalidInput(f"policy: low and high must have {self.n_out} entries")
        if self.output != "greedy" and not np.all(self.low < self.high):
            raise InvalidInput("policy: every entry of low must be below that of high")
        if self.output == "squash" and not np.all(np.isfinite(self.high - self.low)):
            raise InvalidInput("policy: a squashed output needs finite bounds low and high")

    def get_weights(self) -> Array:
        """theta (n_weights,): the last layer's weights row-major (n_out, n_hidden), then its biases."""
        w, b = self.layers[-1]
        return np.concatenate([w.T.ravel(), b])

    def set_weights(self, theta: ArrayLike) -> None:
        """Put theta in place of the last layer; InvalidInput (and nothing changed) unless finite and of that length."""
        theta = as_vector(theta, "theta", self.n_weights)
        split = self.n_weights - self.n_out
        self.layers[-1] = (np.ascontiguousarray(theta[:split].reshape(self.n_out, -1).T), theta[split:].copy())

    def outputs(self, observation: ArrayLike) -> Array:
        """The last layer's outputs y (n_out,)."""
        z = (np.asarray(observation, dtype=np.float64) - self.input_offset) * self.input_scale
        z = np.clip(z, -self.input_clip, self.input_clip)
        for w, b in self.layers[:-1]:
            z = ACTIVATIONS[self.activation](z @ w + b)
        w, b = self.layers[-1]
        return np.asarray(z @ w + b)

    def __call__(self, observation: ArrayLike) -> Array:
        """The deterministic action: (1,) with the greedy action's number, or (n_out,) rounded to float32."""
        y = self.outputs(observation)
        if self.output == "greedy":
            return np.array([float(np.argmax(y))])
        if self.output == "squash":
            y = self.low + 0.5 * (np.tanh(y) + 1.0) * (self.high - self.low)
        return np.clip(y.astype(np.float32).astype(np.float64), self.low, self.high)

    def save(self, path: Path | IO[bytes]) -> None:
        """Write all of it to an .npz."""
        arrays: dict[str, Any] = {}
        for i, (w, b) in enumerate(self.layers, start=1):
            arrays |= {f"w{i}": w, f"b{i}": b}
        how = {"activation": self.activation, "output": self.output, "input_clip": self.input_clip}
        bounds = {"low": self.low.tolist(), "high": self.high.tolist()}
        meta = np.array(json.dumps({**self.meta, **how, **bounds}))
        np.savez_compressed(path, meta=meta, input_offset=self.input_offset, input_scale=self.input_scale, **arrays)

    @classmethod
    def load(cls, path: Path) -> Agent:
        """Read what `save` wrote; InvalidInput with the file's name if it is something else."""
        try:
            file = checks.load_arrays(path)
            meta = checks.parse_json(str(file["meta"]), "meta")
            depth = sum(name.startswith("w") for name in file)
            layers = [(file[f"w{i}"], file[f"b{i}"]) for i in range(1, depth + 1)]
            norm = {name: file[name] for name in ("input_offset", "input_scale") if name in file}
            how = {k: meta.pop(k) for k in ("activation", "output", "input_clip", "low", "high") if k in meta}
            return cls(layers, meta=meta, **norm, **how)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
            raise InvalidInput(f"policy file {path}: {str(error).removeprefix(f'{path}: ')}") from None
