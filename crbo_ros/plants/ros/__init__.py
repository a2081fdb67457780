"""Plants that are somebody else's ROS nodes: tuned parameters, and an arm behind ros2_control."""
