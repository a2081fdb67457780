"""`pip install .`: the optimizer as a plain Python library, without ROS. (colcon builds the ROS package by CMake.)

The dependencies stand once, in requirements/*.txt: the pin is what we test with, the range behind `#` what we ask for.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def ranges(purpose: str) -> list[str]:
    """`name==pin ; marker  # range` -> `name range ; marker`, for each line of requirements/<purpose>.txt."""
    found = []
    for line in (ROOT / "requirements" / f"{purpose}.txt").read_text().splitlines():
        requirement, _, allowed = line.partition("#")
        if not requirement.strip():
            continue
        pin, _, marker = requirement.partition(";")
        name = re.split(r"[=<>]", pin)[0].strip()
        wanted = f"{name}{allowed.strip()}" if allowed.strip() else pin.strip()
        found.append(f"{wanted}; {marker.strip()}" if marker.strip() else wanted)
    return found


setup(
    name="crbo_ros",
    version=re.search(r'__version__ = "(.+)"', (ROOT / "crbo_ros" / "__init__.py").read_text())[1],
    description="Cautious Bayesian optimization of robot policies (CRBO)",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["crbo_ros", "crbo_ros.*"]),
    package_data={"crbo_ros": ["py.typed", "data/*", "report/templates/*"]},
    install_requires=ranges("core"),
    extras_require={
        "sim": ranges("sim"),
        "torch": ranges("torch"),
        "bench": ranges("sim") + ranges("torch") + ranges("bench"),
        "train": ranges("sim") + ranges("torch") + ranges("train"),
        "ros": ranges("ros"),
        "gui": ranges("gui"),
        "test": ranges("test"),
    },
    entry_points={"console_scripts": ["crbo = crbo_ros.cli:main"]},
)
