"""Errors for the reader: what was wrong, where, what to do."""

import os
import shutil
import traceback

DEBUG = "CRBO_DEBUG"  # environment: set by --debug, for this process and those that it starts


def as_called(text: str) -> str:
    """Advice as this user can type it: `./crbo` in a clone, `crbo` where that is on the PATH, else through ros2 run."""
    if os.environ.get("CRBO_ROOT"):
        return text
    in_workspace = os.environ.get("AMENT_PREFIX_PATH") and not shutil.which("crbo")
    return text.replace("./crbo", "ros2 run crbo_ros crbo" if in_workspace else "crbo")


def explain(error: BaseException) -> str:
    """An error as a sentence; with --debug the whole traceback. One that nobody foresaw is named as such."""
    if os.environ.get(DEBUG):
        return "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, CrboError):
        return as_called(str(error))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the system says'}: {error.strerror}"[:400]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    told = " ".join(str(error).split())[:400]
    return f"unexpected {type(error).__name__}{where}: {told or 'no text'} (--debug, or {DEBUG}=1, shows all of it)"


class CrboError(Exception):
    """Base of all errors that this package raises on purpose."""


class InvalidInput(CrboError, ValueError):
    """A value from outside (theta, return, parameter, file) is not acceptable; nothing was changed."""


class UnknownName(CrboError, KeyError):
    """No task, plant or method of that name is registered."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print the repr


class MissingDependency(CrboError, ImportError):
    """An optional package is needed for what was asked; the message says what to install."""


class PlantError(CrboError, RuntimeError):
    """The plant could not do what was asked (connect, reset, step), by no fault of the policy."""


class PlantFailed(PlantError):
    """What moves, or the process that guards it, is broken: nothing more until a person has looked."""


class PolicyFailed(PlantError):
    """The plant refused what the policy asked for (beyond its limits, not finite); nothing of it was done."""


class StoreError(CrboError, RuntimeError):
    """The experiment's database cannot be used; the file was not touched."""


class Exhausted(CrboError, RuntimeError):
    """The optimizer has nothing acceptable left to propose."""
