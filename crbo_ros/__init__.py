"""Cautious Bayesian optimization of robot policies, on the robot itself (CRBO)."""

from pkgutil import extend_path

__version__ = "0.2.0"

# The generated messages and services (crbo_ros.msg, crbo_ros.srv) are built into the install space, under the same
# package name; this finds them there when the sources are used in place.
__path__ = extend_path(__path__, __name__)
