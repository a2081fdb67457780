"""ros2 launch crbo_ros tuning.launch.py config:=/path/to/pid.yaml episodes:=40"""

from crbo_ros.bringup.launching import describe


def generate_launch_description():
    return describe("tuning")
