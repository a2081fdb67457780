"""A run drawn and written down. No ROS needed."""

from crbo_ros.report.write import write_report

__all__ = ["write_report"]
