"""ros2 launch crbo_ros arm.launch.py config:=/path/to/arm.yaml episodes:=50"""

from crbo_ros.bringup.launching import describe


def generate_launch_description():
    return describe("arm")
