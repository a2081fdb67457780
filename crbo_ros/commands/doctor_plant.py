"""`./crbo doctor --plant NAME`: try each way to the safe state on the real plant, with a person at the switch.

Nothing moves before the person says yes, each time anew. What was found is written down, so that a later run can be
held against it. docs/HARDWARE.md is the procedure around this.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros import registry
from crbo_ros.core.safe import safe_of
from crbo_ros.errors import CrboError, InvalidInput
from crbo_ros.plants.journal import folder
from crbo_ros.plants.qube.hardware import QubeHardware
from crbo_ros.plants.realtime import priority

Ask = Callable[[str], bool]
NOT_TRIED = "not tried"
VOLTAGE, STEPS = 1.0, 40  # V, periods: enough to see the arm turn, too little to hurt


def find_task(plant: str) -> str:
    """The task that has a plant of this name; InvalidInput lists the plants there are."""
    known = {name: task for task in registry.names("tasks") for name in _plants(task)}
    if plant not in known:
        raise InvalidInput(f"--plant: no task has a plant {plant!r}; there are: {', '.join(sorted(known))}")
    return known[plant]


def _plants(task: str) -> tuple[str, ...]:
    try:
        return tuple(registry.load("tasks", task).plants)
    except (CrboError, ImportError):
        return ()


def by_keyboard(question: str) -> bool:
    try:
        return input(f"{question} [yes/no] ").strip().lower() == "yes"
    except EOFError:
        return False


def try_plant(name: str, options: dict[str, Any], ask: Ask = by_keyboard, say: Callable[[str], None] = print) -> int:
    """0 if everything that was tried ended safe, and was confirmed."""
    task = registry.make_task(find_task(name), name, **options)
    found: list[dict[str, Any]] = []
    try:
        if not task.hardware:
            say(f"{name} is a simulation: there is nothing to try")
            return 0
        say(f"limits: {task.limits_in_words() or 'none that the plant knows of'}")
        if not ask(f"{name}: connect to it? (a Qube: arm at its centre, pendulum hanging at rest, hand at the switch)"):
            return 1
        task.connect()
        note(found, say, "connected, at rest", safe_of(task.stop(), False, name))
        for text in getattr(getattr(task.plant, "_host", None), "notes", []):
            say(f"  not here: {text}")
            found.append({"trial": "not here", "confirmed": None, "reason": text})
        if isinstance(task.plant, QubeHardware):
            try_qube(task.plant, ask, say, found)
    except CrboError as error:
        say(f"failed: {error}")
        found.append({"trial": "failed", "confirmed": False, "reason": str(error)})
    finally:
        task.close()
    say(f"written: {write_down(name, found)}\n{verdict(found)}")
    return 1 if any(row["confirmed"] is False for row in found) else 0


def verdict(found: list[dict[str, Any]]) -> str:
    """The last words to the person at the switch: what is not well first, and what nobody looked at."""
    bad = [f"{row['trial']} ({row['reason']})" for row in found if row["confirmed"] is False]
    left = [row["trial"] for row in found if row["reason"] == NOT_TRIED]
    words = (
        f"NOT WELL: {', '.join(bad)}. Do not run it unattended: somebody stays at the switch"
        if bad
        else ("all that was tried ended safe")
    )
    return words + (f"; not tried: {', '.join(left)}" if left else "")


def note(found: list[dict[str, Any]], say: Callable[[str], None], trial: str, safe: Any, seconds: float = 0.0) -> None:
    found.append({"trial": trial, "confirmed": safe.confirmed, "reason": safe.reason, "seconds": seconds})
    say(f"  {trial}: {safe}" + (f" ({seconds:.2f} s)" if seconds else ""))


def try_qube(plant: QubeHardware, ask: Ask, say: Callable[[str], None], found: list[dict[str, Any]]) -> None:
    """A stop, a runner that falls silent, a host that is frozen, a host that is killed: each with 1 V on the motor."""

    def turn() -> None:
        plant._hurry(True)
        plant._connected().arm()
        for _ in range(STEPS):
            plant.step(np.array([VOLTAGE]))

    def wanted(trial: str, what: str, then: str = "") -> bool:
        yes = ask(f"{what}: the arm gets {VOLTAGE:g} V for {1e3 * STEPS / plant.rate:.0f} ms{then}. Clear of it?")
        if not yes:
            found.append({"trial": trial, "confirmed": None, "reason": NOT_TRIED})
        return yes

    def seen(trial: str, question: str, well: str, bad: str) -> None:
        """What only the person can see."""
        stopped = ask(question)
        found.append({"trial": trial, "confirmed": stopped, "reason": well if stopped else bad})

    longer = ", and longer if nothing stops it: then SWITCH IT OFF"

    if wanted("stop", "a stop"):
        turn()
        began = time.monotonic()
        note(found, say, "stop", plant.stop(), time.monotonic() - began)
    if wanted("runner silent", "a runner that falls silent"):
        turn()
        time.sleep(0.2)  # 50 periods: the host must have written 0 V after 3
        try:
            plant.step(np.zeros(1))
        except CrboError as error:
            say(f"  the host said: {error}")
        note(found, say, "runner silent", plant.stop())
    if wanted("host frozen", "a host that is frozen for 0.5 s (the card's own watchdog, where it has one)", longer):
        turn()
        pid = plant._host.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        note(found, say, "host frozen, then back", plant._host.make_safe(2.0))
        question = "did the arm stop at once (yes), or did it turn on for half a second (no)?"
        seen("the card's own watchdog", question, "acts", "does NOT act")
    if wanted("host killed", "a host that is killed (what the card does when nobody holds it)", longer):
        turn()
        plant._host.kill("killed on purpose")
        question = "did the arm stop (yes), or does it turn on (no: SWITCH IT OFF)?"
        seen("the card without a process", question, "goes to 0 V", "HOLDS its voltage")


def write_down(name: str, found: list[dict[str, Any]]) -> Path:
    path = folder() / f"doctor-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"plant": name, "when": time.strftime("%F %T"), "machine": platform.node(), "real_time": _permitted()}
    path.write_text(json.dumps({**about, "found": found}, indent=1))
    return path


def _permitted() -> str:
    why = priority(40)
    priority(0)
    return why or "permitted"
