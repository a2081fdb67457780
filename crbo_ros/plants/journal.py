"""What must be put right after a power cut: written to disk before anything is changed, gone when it is put right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from crbo_ros.errors import PlantFailed
from crbo_ros.plants.lock import lock_path


def folder() -> Path:
    """CRBO_STATE, or the user's folder for state."""
    default = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "crbo_ros"
    return Path(os.environ.get("CRBO_STATE") or default)


class Journal:
    """One JSON value for each target (in this ROS domain)."""

    def __init__(self, target: str) -> None:
        self.path = folder() / f"{lock_path(target).stem}.json"

    def write(self, value: Any) -> None:
        """On disk when this returns; PlantFailed if it cannot be, and then nothing may be changed."""
        fresh = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("w") as file:
                json.dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise PlantFailed(f"what to restore cannot be written down, so nothing is changed: {error}") from None

    def read(self) -> Any:
        """What was left to be put right, or None. A damaged file is a PlantFailed that names it."""
        try:
            return json.loads(self.path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PlantFailed(
                f"{self.path}: cannot be read ({error}); look at the robot's values, then remove it"
            ) from None

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
