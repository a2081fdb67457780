"""The one place that checks what comes from outside: names, numbers, and how much of a file is read.

For the command line, parameter files, launch arguments, YAML and npz. Everything else gets values checked here.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from crbo_ros.errors import InvalidInput

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
NAMESPACE = re.compile(r"/?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*/?")
LONGEST_NAME = 100
SPECIAL = {"true", "false", "yes", "no", "on", "off", "null", "nan", "inf"}  # what YAML takes for something else
TEXT_LIMIT, ARRAY_LIMIT = 4 << 20, 256 << 20  # bytes of a text file and of a file with arrays
DEPTH_LIMIT = 40  # of nested lists and objects
SECONDS_LIMIT = 1e6  # a duration: some 11 days
_READ: ContextVar[set[Path] | None] = ContextVar("files that were read", default=None)


@contextmanager
def files_read() -> Iterator[set[Path]]:
    """Which text files and files with arrays are read inside: what an experiment depends on."""
    found: set[Path] = set()
    token = _READ.set(found)
    try:
        yield found
    finally:
        _READ.reset(token)


def _reads(path: Path) -> None:
    if (found := _READ.get()) is not None:
        found.add(path)


def name(text: object, what: str) -> str:
    """A name that can be a folder, a parameter and a part of a message."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what}: {_short(text)} is no name; put it in quotes and begin with a letter")
    if len(text) > LONGEST_NAME:
        raise InvalidInput(f"{what}: {_short(text)} has {len(text)} letters; at most {LONGEST_NAME} are allowed")
    if not NAME.fullmatch(text) or text.lower() in SPECIAL:
        raise InvalidInput(
            f"{what}: {_short(text)} cannot be a name; use letters, digits and any of _ . - and begin with a letter "
            "(true, off, null and the like stand for something else)"
        )
    return text


def namespace(text: str, what: str = "namespace") -> str:
    """A ROS namespace; empty for the root."""
    if text.strip("/") and (not NAMESPACE.fullmatch(text) or "__" in text or len(text) > LONGEST_NAME):
        raise InvalidInput(
            f"{what}: {_short(text)} is no ROS namespace; use letters, digits and single _, begin with a letter, "
            "and put / between its parts"
        )
    return text


def choice(text: str, known: tuple[str, ...], what: str) -> str:
    if text not in known:
        raise InvalidInput(f"{what}: {_short(text)} is none of {', '.join(known)}")
    return text


def number(
    value: object,
    what: str,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    whole: bool = False,
    above: bool = False,
    infinite: bool = False,
) -> float:
    """A number in [low, high] (`above`: not low itself), finite unless `infinite`; texts are read. Never NaN."""
    kind = "a whole number" if whole else "a number"
    if isinstance(value, str) and len(value) <= 400:
        try:
            value = int(value) if whole else float(value)
        except ValueError:
            raise InvalidInput(f"{what}: {_short(value)} is not {kind}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (whole and value != int_or_none(value)):
        raise InvalidInput(f"{what}: {_short(value)} is not {kind}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isnan(found):
        raise InvalidInput(f"{what}: is NaN, not {kind}")
    if math.isinf(found) and not infinite:
        raise InvalidInput(f"{what}: must be finite")
    if found < low or found > high or (above and found == low):
        room = f"{'above' if above else 'at least'} {low:g}" if low > -math.inf else ""
        room += (" and " if room else "") + f"at most {high:g}" if high < math.inf else ""
        raise InvalidInput(f"{what}: {_short(value)} is out of range; it must be {room}")
    return value


def finite(value: Any, what: str, level: int = 0) -> None:
    """That no number in a value (of lists and mappings) is NaN or infinite, and nothing is nested too deep."""
    if level > DEPTH_LIMIT:
        raise InvalidInput(f"{what}: is nested more than {DEPTH_LIMIT} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{what}: must be finite, is {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InvalidInput(f"{what}: is too large")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not key or len(key) > LONGEST_NAME or not key.isprintable():
                raise InvalidInput(f"{what}: {_short(key)} is no name")
            finite(inner, f"{what}.{key}", level + 1)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            finite(inner, f"{what}[{i}]", level + 1)
    elif isinstance(value, str) and (len(value) > 4096 or "\0" in value):
        raise InvalidInput(f"{what}: is no text of a sensible length")


def int_or_none(value: int | float) -> int | None:
    return int(value) if isinstance(value, int) or math.isfinite(value) else None


def seconds(value: object, what: str, low: float = 0.0) -> float:
    """A duration that a clock can count."""
    return number(value, what, low, SECONDS_LIMIT, above=True)


def path(text: str | Path, what: str) -> Path:
    """A path in which ~ and ~user may stand for a home."""
    try:
        str(text).encode()
        return Path(text).expanduser()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what}: {_short(str(text))} is no text (not UTF-8)") from None
    except RuntimeError:
        raise InvalidInput(f"{what}: {_short(str(text))} names the home of a user that this machine has not") from None


def evaluations(value: object) -> int:
    """Rollouts of the best policy after a run: found out before it, not at its end."""
    return int(number(value, "evaluate", 0, 10_000, whole=True))


def read_text(path: Path, limit: int = TEXT_LIMIT) -> str:
    """A text file of a sensible size; InvalidInput names it."""
    _reads(Path(path))
    try:
        with open(path, "rb") as file:
            if not os.path.isfile(path):
                raise InvalidInput(f"{path}: is no file")
            content = file.read(limit + 1)
        if len(content) > limit:
            raise InvalidInput(f"{path}: is larger than {limit >> 20} MB; such a file is not read")
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is no text (byte {error.start} is not UTF-8)") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def read_json(path: Path, limit: int = TEXT_LIMIT) -> Any:
    return parse_json(read_text(path, limit), str(path))


def parse_json(text: str, what: str) -> Any:
    """JSON without surprises: not too deep, no number twice the size of the universe, no key twice."""
    if len(text) > TEXT_LIMIT:
        raise InvalidInput(f"{what}: is longer than {TEXT_LIMIT >> 20} MB")
    if depth(text) > DEPTH_LIMIT:
        raise InvalidInput(f"{what}: is nested more than {DEPTH_LIMIT} deep")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: is no JSON ({error})") from None


def depth(text: str) -> int:
    """How deep brackets are nested in a text, roughly: those within quotes count as well."""
    deepest = level = 0
    for letter in text:
        if letter in "[{":
            level += 1
            deepest = max(deepest, level)
        elif letter in "]}":
            level -= 1
    return deepest


def check_arrays(path: Path, limit: int = ARRAY_LIMIT) -> None:
    """That an .npy or .npz file is there and holds no more than a sensible size, packed or not. Reads its head only."""
    try:
        if not path.is_file():
            raise InvalidInput(f"{path}: there is no such file")
        size = path.stat().st_size
        if size == 0:
            raise InvalidInput(f"{path}: is empty")
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
                for member in archive.infolist():
                    with archive.open(member) as file:
                        _check_header(path, file, limit)
        else:
            with open(path, "rb") as file:
                _check_header(path, file, limit)
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"{path}: cannot be read ({error})") from None
    if size > limit:
        raise InvalidInput(f"{path}: is larger than {limit >> 20} MB")


def _check_header(path: Path, file: Any, limit: int) -> None:
    """NumPy makes an array of the size that the header says before it reads a byte of it."""
    import numpy as np

    formats = np.lib.format
    try:
        version = formats.read_magic(file)
        read = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
        shape, _, dtype = read(file)
        size = math.prod(shape) * dtype.itemsize
    except Exception as error:  # (NumPy raises what it comes upon)
        raise InvalidInput(
            f"{path}: holds no array ({str(error).splitlines()[0] if str(error) else error!r})"
        ) from None
    if dtype.hasobject or dtype.kind not in "biufUS":
        raise InvalidInput(f"{path}: holds {dtype}, not real numbers")
    if size > limit:
        raise InvalidInput(f"{path}: says it holds an array of {size / 1e9:.3g} GB; such a file is not read")


def load_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file (or the one of an .npy file, called ""), checked first."""
    import numpy as np

    check_arrays(path)
    _reads(Path(path))
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {"": content}
        with content:
            return {name: content[name] for name in content.files}
    except Exception as error:  # damaged in a way of its own
        raise InvalidInput(f"{path}: cannot be read ({type(error).__name__}: {error})") from None


def writable(path: Path, what: str) -> Path:
    """That a file can be written there, before any work is done for it."""
    folder = path.absolute().parent
    if path.is_dir():
        raise InvalidInput(f"{what}: {path} is a folder, not a file")
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{what}: {path} is no file but a device or the like; it is left alone")
    if not folder.is_dir():
        raise InvalidInput(f"{what}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"{what}: nothing can be written in {folder}")
    return path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file that is in its place only when it is complete. Nothing but a file is replaced."""
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "is no file and is left alone", str(path))
    part = path.with_name(path.name + ".part")
    yield part
    part.replace(path)


def signature(text: str, what: str) -> str:
    """Who somebody is, for a record that people read."""
    if len(text) > LONGEST_NAME or not text.isprintable():
        raise InvalidInput(f"{what}: {_short(text)} is no name: one line of at most {LONGEST_NAME} letters")
    return text


def printable(text: str) -> str:
    """A text of somebody else's for a terminal: what would move the cursor, colour or hide something is shown as ?."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def cell(value: Any) -> Any:
    """A value for a spreadsheet: a text that it would take for a formula begins with an apostrophe."""
    if isinstance(value, str):
        value = printable(value)
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return value


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 80 else text[:77] + "..."
