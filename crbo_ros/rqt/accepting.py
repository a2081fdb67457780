"""The window's button for `crbo accept` and `crbo rollback`: it asks first, for things will move."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crbo_ros.home import home
from crbo_ros.protocol import manifest
from crbo_ros.rqt.qt import QtWidgets
from crbo_ros.view.values import OptimizerState

TEXTS = {
    "accept": ("Accept …", "Old against new policy, in turns, until it is certain which is better"),
    "rollback": ("Roll back …", "Put back what was there before the experiment"),
}
QUESTIONS = {
    "accept": "The robot will move: the old and the new policy of {0} in turns, up to 100 rollouts. Begin?",
    "rollback": "Put back what was there before {0}?",
}


class Accepting(QtWidgets.QWidget):  # type: ignore[misc]
    """Two buttons, for an experiment that is over and whose folder is here. `ask` and `start` are for tests."""

    def __init__(self, ask: Callable[[str], bool] | None = None, start: Any = subprocess.Popen) -> None:
        super().__init__()
        self._ask, self._start = ask or self._confirm, start
        self.experiment = ""
        self._process: Any = None
        row = QtWidgets.QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        self.buttons = {}
        for name, (text, tip) in TEXTS.items():
            button = QtWidgets.QPushButton(text)
            button.setToolTip(tip)
            button.setEnabled(False)
            button.clicked.connect(lambda *_, name=name: self.click(name))
            self.buttons[name] = button
            row.addWidget(button)

    def show_state(self, state: OptimizerState | None) -> None:
        """Whether the buttons apply: the run is over, its experiment is here, and no other command is under way."""
        over = state is not None and state.state in ("finished", "exhausted") and state.method != "acceptance"
        if over and state is not None:
            self.experiment = state.experiment
        here = bool(self.experiment) and (home() / self.experiment / manifest.FILE).is_file()
        free = self._process is None or self._process.poll() is not None
        for button in self.buttons.values():
            button.setEnabled(over and here and free)

    def click(self, name: str) -> None:
        if not self._ask(QUESTIONS[name].format(self.experiment)):
            return
        log: Path = home() / self.experiment / f"{name}.log"
        with open(log, "w") as output:
            line = [sys.executable, "-u", "-m", "crbo_ros.cli", name, self.experiment]
            self._process = self._start(line, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        for button in self.buttons.values():
            button.setEnabled(False)

    def _confirm(self, question: str) -> bool:
        answer = QtWidgets.QMessageBox.question(self, "crbo", question)
        return bool(answer == QtWidgets.QMessageBox.StandardButton.Yes)
