"""Ready-made returns: metrics of what standard topics say, weighted sums of them, and hard limits. No ROS needed."""
