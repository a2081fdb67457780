"""The compiler's wrapper: where nothing can be cached or nothing compiled, the functions still work."""

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crbo_ros import compiled


def double(x: Any) -> Any:
    return 2.0 * x


def test_where_no_folder_can_be_written_it_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def njit(cache: bool = False, **options: Any) -> Callable[..., Any]:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(njit=njit))
    assert compiled.jit(double)(3.0) == 6.0
    assert asked == [True, False]


def test_without_numba_the_function_itself_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled.jit(double) is double


def test_angles_wrap_to_half_open_pi() -> None:
    angles = np.array([0.0, np.pi - 1e-9, np.pi, -np.pi, 3.0 * np.pi, 7.0, -7.0])
    wrapped = np.array([compiled.wrap(angle) for angle in angles])
    assert np.all((wrapped >= -np.pi) & (wrapped < np.pi))
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * angles), atol=1e-12)
