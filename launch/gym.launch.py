"""ros2 launch crbo_ros gym.launch.py env:=pendulum (or cartpole, mountaincar; or ENV_ID with weights:=my.npz)"""

from crbo_ros.bringup.launching import describe


def generate_launch_description():
    return describe("gym", env="pendulum")
