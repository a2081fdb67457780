"""The live monitor: model.py (what is shown), client.py (ROS), widget.py and plots.py (Qt), plugin.py (rqt)."""
