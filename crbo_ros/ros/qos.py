"""The quality-of-service profiles of the graph, by what they are for."""

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data

# The newest value, for late joiners too.
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# A history that late joiners get: returns, verdicts, proposals.
HISTORY = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# Only the present counts, and a late one is worth nothing.
HEARTBEAT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
# The same for whoever listens, also with ROS's default (controllers), which takes nothing that is best effort.
COMMAND = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
SENSOR = qos_profile_sensor_data
