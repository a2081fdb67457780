"""A method is brought to where its store is: the newest snapshot, then the events since then, in order."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from crbo_ros.core.method import Method
from crbo_ros.errors import StoreError
from crbo_ros.protocol.store import Event, ExperimentStore

Make = Callable[[dict[str, Any]], Method]  # settings -> a fresh method
SECOND = "second source"  # the flag that holds returns of another plant: [thetas, values]
log = logging.getLogger(__name__)


def replay(make: Make, store: ExperimentStore) -> Method:
    """The method as it stood when the store was last written.

    An event that the method cannot digest is set aside in the store with a warning, and its proposal ends as expired: a
    return that breaks the method is still on record, and must not keep the whole experiment from going on.
    """
    row = store.experiment()
    assert row is not None
    while True:
        method = make(row["config"])
        try:
            if second := store.flag(SECOND):
                method.inform(*json.loads(second))
            state, events = store.resume_point()
            if state is not None:
                method.restore(state)
        except Exception as error:
            raise StoreError(
                f"{store.database.path}: the method's saved state cannot be restored ({error}); the file was kept"
            ) from error
        if all(_apply(method, event, store) for event in events):
            return method


def apply(method: Method, verb: str, arguments: list[Any]) -> None:
    """Tell the method one event."""
    if verb == "configure":
        method.configure(**arguments[0])  # type: ignore[attr-defined]
    else:
        if verb in ("tell", "fail") and len(arguments) == 3:
            method.mark(arguments[0], arguments[2])
            arguments = arguments[:2]
        getattr(method, verb)(*arguments)


def _apply(method: Method, event: Event, store: ExperimentStore) -> bool:
    id = event.arguments[0] if event.verb in ("tell", "veto", "fail") else None
    pending = id in method.pending
    try:
        apply(method, event.verb, event.arguments)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        log.warning("%s: %s %s was set aside (%s)", store.database.path, event.verb, event.arguments, why)
        store.set_aside(event.sequence, why, id if pending else None)
        return False
    return True
