"""Slow tests run with --slow; BLAS and torch are pinned to one thread, as in the nodes."""

import importlib.abc
import os
import random
import sys

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402  (after the pins)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests as well")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


class NoTorch(importlib.abc.MetaPathFinder):
    """Quick tests need no torch: an import of it fails, also where it is installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("quick tests must not need torch; mark this one slow", name="torch")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--slow"):
        sys.meta_path.insert(0, NoTorch())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
