"""Episodes of earlier: of another experiment of the same problem, or of a CSV file."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.space import Vector
from crbo_ros.errors import InvalidInput
from crbo_ros.home import home
from crbo_ros.protocol.store import ExperimentStore

FILE = "experiment.sqlite"
Earlier = list[tuple[Vector, float]]  # (theta, return)


def earlier_episodes(source: str, problem: Problem, experiments_dir: str = "") -> Earlier:
    """What a file, a folder or a name holds; InvalidInput says why it cannot be used, by line."""
    given = Path(source).expanduser()
    if given.suffix.lower() == ".csv":
        return read_csv(given, problem)
    for path in (given, given / FILE, home(experiments_dir) / given / FILE):
        if path.is_file():
            return read_experiment(path, problem)
    raise InvalidInput(f"attach: {source} is neither a .csv file nor an experiment")


def read_experiment(path: Path, problem: Problem) -> Earlier:
    store = ExperimentStore(path)
    try:
        identity = store.identity()
        if identity is None:
            raise InvalidInput(f"attach: {path} holds no experiment yet")
        if others := differences(problem.key, identity.problem):
            raise InvalidInput(f"attach: {path} is of another problem ({'; '.join(others)})")
        return [(episode.theta, episode.value) for episode in store.episodes() if episode.counts]
    finally:
        store.close()


def read_csv(path: Path, problem: Problem) -> Earlier:
    """One episode a line: the parameters by their names (or theta[0], theta[1], ...) and `value`, the return.

    Other columns are ignored, and so are lines without a return: what `crbo export --csv` writes is such a file.
    """
    space, found = problem.space, []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or ())
            wanted = [_column(columns, (name, name.rpartition(" ")[2], f"theta[{i}]"))
                      for i, name in enumerate(space.names)]  # fmt: skip
            value = _column(columns, ("value", "return"))
            for line in reader:
                if not (line[value] or "").strip():
                    continue
                numbers = []
                for column in (*wanted, value):
                    try:
                        numbers.append(float(line[column] or ""))
                    except ValueError:
                        raise InvalidInput(f"line {reader.line_num}: {column}: {line[column]!r} is no number") from None
                if not math.isfinite(numbers[-1]):
                    raise InvalidInput(f"line {reader.line_num}: {value}: is {numbers[-1]}")
                try:
                    theta = space.check(numbers[:-1])
                except InvalidInput as error:
                    raise InvalidInput(f"line {reader.line_num}: {error}") from None
                found.append((theta, numbers[-1]))
    except InvalidInput as error:
        raise InvalidInput(f"attach: {path}: {error}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"attach: {path} cannot be read: {error}") from None
    if not found:
        raise InvalidInput(f"attach: {path} has no line with a return")
    return found


def _column(columns: list[str], names: tuple[str, ...]) -> str:
    for name in names:
        if columns.count(name) == 1:
            return name
    raise InvalidInput(f"there must be one column called {' or '.join(names)}; there are: {', '.join(columns)}")
