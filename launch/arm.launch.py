"""ros2 launch crbo_ros arm.launch.py config:=/path/to/arm.yaml episodes:=50"""

from crbo_ros.nodes.graph import TASK_OPTIONS
from crbo_ros.nodes.launching import describe


def generate_launch_description():
    return describe("arm", extra=TASK_OPTIONS)
