"""Optimizer and safety monitor without a runner of ours: ros2 launch crbo_ros custom.launch.py params_file:=my.yaml"""

from crbo_ros.bringup.launching import describe


def generate_launch_description():
    return describe("custom")
