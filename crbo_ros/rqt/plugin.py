"""The rqt plugin "CRBO Monitor": the widget, its namespace kept in the perspective."""

from __future__ import annotations

from typing import Any

from rqt_gui_py.plugin import Plugin

from crbo_ros.rqt.client import RosClient
from crbo_ros.rqt.widget import MonitorWidget


class CrboMonitor(Plugin):  # type: ignore[misc]
    """Found by rqt through plugin.xml."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.setObjectName("CrboMonitor")
        # A node of our own on a thread of our own: rqt's may be busy with other plugins when stop is clicked.
        self._client = RosClient()
        self._client.__enter__()
        self._widget = MonitorWidget(self._client)
        if context.serial_number() > 1:
            self._widget.setWindowTitle(f"{self._widget.windowTitle()} ({context.serial_number()})")
        context.add_widget(self._widget)

    def save_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        instance_settings.set_value("namespace", self._widget.namespace.currentText())

    def restore_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        if namespace := instance_settings.value("namespace", ""):
            self._widget.set_namespace(namespace)

    def shutdown_plugin(self) -> None:
        self._widget.shutdown()
        self._client.close()
