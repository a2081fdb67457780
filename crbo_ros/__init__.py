"""Cautious Bayesian optimization of robot policies, on the robot itself (CRBO)."""

__version__ = "0.1.0"
