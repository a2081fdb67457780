"""ros2 launch crbo_ros furuta.launch.py plant:=stand_in episodes:=100 seed:=1"""

from crbo_ros.bringup.launching import describe


def generate_launch_description():
    return describe("furuta")
