"""A real Qt without a screen."""

import os
import sys
import time

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def application():
    from crbo_ros.errors import MissingDependency

    try:
        from crbo_ros.rqt.qt import QtWidgets
    except MissingDependency as error:
        pytest.skip(str(error))
    return QtWidgets.QApplication.instance() or QtWidgets.QApplication(sys.argv[:1])


@pytest.fixture
def until(application):
    """until(condition, seconds): let Qt work until a condition holds; whether it did."""

    def wait(condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            application.processEvents()
            if condition():
                return True
            time.sleep(0.01)
        return False

    return wait
