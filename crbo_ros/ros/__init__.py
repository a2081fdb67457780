"""rclpy for everybody: links, calls, conversions, parameters. No decisions are made here."""
