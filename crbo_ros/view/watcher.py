"""Listens to a running graph for whoever started it."""

from __future__ import annotations

from crbo_ros.view.live import LiveView
from crbo_ros.view.progress import ProgressLine
from crbo_ros.view.topics import TopicFeed
from crbo_ros.view.values import OptimizerState


class Watcher(TopicFeed):
    """A context manager: the topics of a namespace in a LiveView."""

    def __init__(self, namespace: str = "") -> None:
        super().__init__(namespace, "crbo_run")
        self.view = LiveView()
        self._progress = ProgressLine(self.view)

    @property
    def state(self) -> OptimizerState | None:
        """The optimizer's newest."""
        self.view.record(self.poll())
        return self.view.state

    @property
    def over(self) -> bool:
        """Whether the optimizer has nothing more to propose."""
        self.view.record(self.poll())
        return self.view.run.over

    def line(self) -> str:
        """One line about where the run stands."""
        self.view.record(self.poll())
        return self._progress.line()
