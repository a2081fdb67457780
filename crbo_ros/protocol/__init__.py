"""The promises of docs/PROTOCOL.md, without ROS: who may move what, when, and how nothing is lost."""
