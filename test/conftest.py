"""Slow tests run with --slow; BLAS and torch are pinned to one thread, as in the nodes."""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402  (after the pins)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A window on a busy machine now and then is slower than a test waits: its tests get a second try (a "rerun").
    # The tests of nodes, plants and core get none: a retry could hide a fault in what guards the robot.
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if "ros" in item.keywords and item.path.parent.name == "rqt":
                item.add_marker(pytest.mark.flaky(reruns=1))
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
