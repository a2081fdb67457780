"""An experiment to look at: read its store, draw it, write it down. No ROS needed."""

from crbo_ros.report.write import write_report
from crbo_ros.view.record import Record, find_store, read_record

__all__ = ["Record", "find_store", "read_record", "write_report"]
