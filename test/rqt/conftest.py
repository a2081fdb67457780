"""A real Qt without a screen."""

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def application() -> Any:
    from crbo_ros.errors import MissingDependency

    try:
        from crbo_ros.rqt.qt import QtWidgets
    except MissingDependency as error:
        pytest.skip(str(error))
    return QtWidgets.QApplication.instance() or QtWidgets.QApplication(sys.argv[:1])


@pytest.fixture
def until(application: Any) -> Any:
    """until(condition, seconds): let Qt work until a condition holds; whether it did."""

    def wait(condition: Any, seconds: float = 20.0) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            application.processEvents()
            if condition():
                return True
            time.sleep(0.01)
        return False

    return wait


def _of_the_nodes(name: Any) -> Any:
    """A module of test/nodes: its toy task and its fixtures for running graphs are used here as well."""
    folder = Path(__file__).parents[1] / "nodes"
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    spec: Any = importlib.util.spec_from_file_location(f"nodes_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_nodes = _of_the_nodes("conftest")
domain, toy_graph = _nodes.domain, _nodes.toy_graph
