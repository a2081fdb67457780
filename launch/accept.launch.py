"""ros2 launch crbo_ros accept.launch.py experiment:=NAME [level:=0.05] [margin:=0.1]: old against new (crbo accept)."""

from crbo_ros.bringup.launching import accept


def generate_launch_description():
    return accept()
