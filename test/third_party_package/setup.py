"""A package of somebody else's: it adds a task, a method and a plant to crbo_ros by entry points, and nothing more."""

from setuptools import setup

setup(
    name="tiny_robot",
    version="0.1.0",
    packages=["tiny_robot"],
    entry_points={
        "crbo_ros.tasks": ["tiny = tiny_robot.task:Tiny"],
        "crbo_ros.methods": ["coin_toss = tiny_robot.method:CoinToss"],
        "crbo_ros.plants": ["furuta.tiny_qube = tiny_robot.plant:TinyQube"],
    },
)
