"""Episodes of earlier: of another experiment of the same problem, of a recording of one (MCAP), or of a CSV file.

An experiment of the same task, policy, domain and return on another plant is a second source (core/second_source.py):
it informs the optimizer's mean, and is no data.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from crbo_ros import checks
from crbo_ros.bag import read_bag
from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.space import Vector
from crbo_ros.errors import InvalidInput
from crbo_ros.home import home
from crbo_ros.protocol.records import COUNTING, OUTCOMES
from crbo_ros.protocol.store import ExperimentStore

FILE = "experiment.sqlite"
KIND = "crbo_ros/msg/EpisodeReturn"
LARGEST_CSV = 64 << 20  # bytes
WITH_RETURN = [OUTCOMES[outcome] for outcome in COUNTING]
Earlier = list[tuple[Vector, float]]  # (theta, return)
OF_THE_PLANT = ("plant", "hardware", "options")  # what may differ between a problem and its second source


def earlier_episodes(source: str, problem: Problem, experiments_dir: str = "") -> tuple[Earlier, str]:
    """What a file, a folder or a name holds, and in which words its plant is another one ("": it is the same).

    InvalidInput says why it cannot be used, by line.
    """
    given = checks.path(source, "attach")
    if given.suffix.lower() == ".csv":
        return read_csv(given, problem), ""
    for path in (given, given / FILE, home(experiments_dir) / given / FILE):
        if path.is_file() and path.suffix.lower() != ".mcap":
            return read_experiment(path, problem)
        if path.is_file():
            return read_recording(path, problem), ""
    if given.is_dir():
        return read_recording(given, problem), ""
    raise InvalidInput(f"attach: {source} is neither a .csv file, nor a bag (.mcap), nor an experiment")


def read_experiment(path: Path, problem: Problem) -> tuple[Earlier, str]:
    store = ExperimentStore(path)
    try:
        identity = store.identity()
        if identity is None:
            raise InvalidInput(f"attach: {path} holds no experiment yet")
        others = differences(problem.key, identity.problem)
        if any(other.split(":")[0] not in OF_THE_PLANT for other in others):
            raise InvalidInput(f"attach: {path} is of another problem ({'; '.join(others)})")
        return [(episode.theta, episode.value) for episode in store.episodes() if episode.counts], "; ".join(others)
    finally:
        store.close()


def read_recording(path: Path, problem: Problem) -> Earlier:
    """The episodes with a return in a bag's topics of the type EpisodeReturn, whatever their names, each once.

    Every message says of which problem it is; a bag that holds another one's is refused whole.
    """
    try:
        log, kinds = read_bag(path, kind=KIND)
        if not log:
            there = ", ".join(f"{topic} ({kind})" for topic, kind in sorted(kinds.items())) or "nothing"
            raise InvalidInput(f"{path}: holds no {KIND} (record the topic episode_return); there is: {there}")
        found: dict[str, tuple[Vector, float]] = {}
        for topic, number, message in ((t, n, m) for t in log for n, (_, m) in enumerate(log[t], 1)):
            where = f"{path}: {topic}, message {number}"
            if not getattr(message, "problem", ""):
                raise InvalidInput(f"{where}: does not say of which problem it is; use a CSV file")
            if others := differences(problem.key, message.problem):
                raise InvalidInput(f"{where}: is of another problem ({'; '.join(others)})")
            if message.outcome not in WITH_RETURN:
                continue
            if not math.isfinite(message.value):
                raise InvalidInput(f"{where}: value: is {message.value}")
            try:
                theta = problem.space.check(message.theta)
            except InvalidInput as error:
                raise InvalidInput(f"{where}: {error}") from None
            found[message.episode_uid] = (theta, float(message.value))
    except InvalidInput as error:
        raise InvalidInput(f"attach: {error}") from None
    if not found:
        raise InvalidInput(f"attach: {path}: none of its {sum(map(len, log.values()))} episodes has a return")
    return list(found.values())


def read_csv(path: Path, problem: Problem) -> Earlier:
    """One episode a line: the parameters by their names (or theta[0], theta[1], ...) and `value`, the return.

    Other columns are ignored, and so are lines without a return: what `crbo export --csv` writes is such a file.
    """
    space, found = problem.space, []
    try:
        reader = csv.DictReader(io.StringIO(checks.read_text(path, LARGEST_CSV).removeprefix("\ufeff"), newline=""))
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
    except csv.Error as error:
        raise InvalidInput(f"attach: {path} cannot be read: {error}") from None
    if not found:
        raise InvalidInput(f"attach: {path} has no line with a return")
    return found


def _column(columns: list[str], names: tuple[str, ...]) -> str:
    for name in names:
        if columns.count(name) == 1:
            return name
    raise InvalidInput(f"there must be one column called {' or '.join(names)}; there are: {', '.join(columns)}")
