"""ros2 launch crbo_ros gym.launch.py env:=pendulum (or cartpole, mountaincar; or ENV_ID with weights:=my.npz)"""

from crbo_ros.bringup.graph import Argument
from crbo_ros.bringup.launching import describe

ENV = Argument("env", "pendulum, cartpole, mountaincar, or the id of any gymnasium environment", default="pendulum")
WEIGHTS = Argument("weights", "policy file for an environment of your own (see crbo import-sb3)")


def generate_launch_description():
    return describe("gym", (ENV, WEIGHTS))
