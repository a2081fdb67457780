"""ros2 launch crbo_ros basketball.launch.py episodes:=110 seed:=1"""

from crbo_ros.bringup.launching import describe


def generate_launch_description():
    return describe("basketball")
