"""report.html (one file, no network) and report.png from an experiment's store."""

from __future__ import annotations

import base64
import io
import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crbo_ros import __version__
from crbo_ros.errors import MissingDependency
from crbo_ros.numbers import UNKNOWN, number, percent
from crbo_ros.report.figures import Drawing, drawings, overview
from crbo_ros.report.trajectories import Replay, replay
from crbo_ros.view.answers import answers
from crbo_ros.view.colors import OUTCOME_COLORS
from crbo_ros.view.contract import contract_words
from crbo_ros.view.headline import headline
from crbo_ros.view.record import read_run
from crbo_ros.view.run_view import RunView

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Table:
    """A column whose name begins with * is text (left-aligned); a row may have a CSS class."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    classes: Sequence[str] = ()


NONE = Table((), ())


@dataclass(frozen=True)
class Page:
    """What templates/report.html shows, in words and pictures."""

    name: str
    headline: str
    veto_color: str = OUTCOME_COLORS["vetoed"]
    empty: str = ""  # why there is nothing else
    answers: Sequence[tuple[str, str]] = ()
    cards: Sequence[tuple[str, str]] = ()
    finished: str = ""
    drawings: dict[str, list[Drawing]] = field(default_factory=dict)
    replay: Replay = field(default_factory=Replay)
    replay_source: str = ""
    best: str = ""
    theta: str = ""
    parameters: Table = NONE
    contract: Table = NONE
    vetoes: Table = NONE
    episodes: Table = NONE
    journal: Table = NONE
    configuration: Table = NONE
    settings: str = ""


def write_report(
    store: Path, folder: Path | None = None, *, trajectories: bool = True, options: dict[str, Any] | None = None
) -> tuple[Path, Path]:
    """(report.html, report.png) in `folder` (the store's by default). `options` go to the task, with its plant."""
    run = read_run(Path(store))
    folder = Path(folder) if folder is not None else run.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    html, png = folder / "report.html", folder / "report.png"
    png.write_bytes(_png(overview(run)))
    shown = replay(run, dict(options or {})) if trajectories else Replay(note="not asked for")
    html.write_text(render(page(run, shown)), encoding="utf-8")
    return html, png


def render(shown: Page) -> str:
    """The page as HTML."""
    try:
        import jinja2
    except ImportError:
        raise MissingDependency("the report needs a package: pip install jinja2") from None
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("report.html").render(page=shown) + "\n"


def page(run: RunView, shown: Replay) -> Page:
    """All that there is to say of the run."""
    if run.experiment is None:
        return Page(run.name, headline(run), empty=f"{run.path.name} holds no experiment yet.")
    return Page(
        run.name,
        headline(run).removeprefix(f"{run.name}: "),
        answers=answers(run),
        cards=_cards(run),
        finished=run.finished,
        drawings=drawings(run),
        replay=shown,
        replay_source=base64.b64encode(shown.png).decode(),
        best=_best(run),
        theta=json.dumps({"proposal": run.best.id, "theta": run.best.theta.tolist()}) if run.best else "",
        parameters=_parameters(run, run.experiment),
        contract=Table(["*", "*"], contract_words(run.contract)),
        vetoes=_vetoes(run),
        episodes=_episodes(run),
        journal=Table(["*when", "*who", "*what"], [(entry.when, entry.who, entry.what) for entry in run.journal]),
        configuration=_configuration(run, run.experiment),
        settings=json.dumps(run.experiment["config"], indent=1, sort_keys=True),
    )


# -- sections -----------------------------------------------------------------------------------------


def _cards(run: RunView) -> list[tuple[str, str]]:
    y, best, coverage, counts = run.returns, run.best, run.series().coverage[1], run.counts()
    return [
        ("episodes", str(len(y))),
        ("return of theta_0", number(y[0]) if len(y) else UNKNOWN),
        ("best observed", number(y.max()) if len(y) else UNKNOWN),
        ("average return", number(y.mean()) if len(y) else UNKNOWN),
        ("recommended", f"proposal {best.id}" if best else UNKNOWN),
        ("its expected return", f"{number(best.mean)} ± {number(best.sigma)}" if best else UNKNOWN),
        ("bound held", f"{percent(coverage[-1])} of {len(coverage)}" if len(coverage) else UNKNOWN),
        *((outcome, str(n)) for outcome, n in counts.items() if outcome != "completed"),
    ]


def _best(run: RunView) -> str:
    if run.best is None:
        return ""
    return f"Proposal {run.best.id}, chosen by {run.best_source}; observed return {number(run.best.observed)}."


def _parameters(run: RunView, facts: dict[str, Any]) -> Table:
    if not run.names or run.best is None:
        return NONE
    both = zip(run.names, facts["theta_0"], run.best.theta, strict=True)
    return Table(["*parameter", "old", "new"], [[name, number(a), number(b)] for name, a, b in both])


def _vetoes(run: RunView) -> Table:
    rows = []
    for row in run.vetoes:
        grounds = [number(v) for v in (row.verdict.threshold, row.verdict.distance)] if row.verdict else [UNKNOWN] * 2
        rows.append([row.id, number(row.bound), *grounds, row.reason])
    return Table(["proposal", "worst case", "threshold", "distance", "*reason"], rows)


def _episodes(run: RunView) -> Table:
    columns = ["proposal", "*kind", "*outcome", "return", "bound", "expected", "±", "gamma", "steps", "s", "*remark"]
    rows, classes = [], []
    timed = any(row.episode is not None and row.episode.max_lateness for row in run.rows)  # hardware
    if timed:
        columns.insert(-1, "late ms: median / 99 % / worst")
    for row in run.rows:
        p, episode = row.proposal, row.episode
        steps = [str(episode.steps), f"{episode.duration:.2f}"] if episode else [UNKNOWN, UNKNOWN]
        if timed and episode is not None:
            late = (episode.median_lateness, episode.p99_lateness, episode.max_lateness)
            steps.append(" / ".join(f"{1e3 * seconds:.2f}" for seconds in late))
        elif timed:
            steps.append(UNKNOWN)
        expected = (p.mean, p.sigma, p.gamma) if p else (None, None, None)
        metrics = [number(v) for v in (row.value, row.bound, *expected)]
        rows.append([row.id, row.kind, row.outcome, *metrics, *steps, row.remark])
        classes.append(row.outcome)
    return Table(columns, rows, classes)


def _configuration(run: RunView, facts: dict[str, Any]) -> Table:
    created = datetime.fromtimestamp(facts["created"], timezone.utc).isoformat(timespec="seconds")
    lines = [
        ("experiment", f"{facts['name']} ({facts['uid']})"),
        ("task, method, seed", f"{facts['task']}, {facts['method']}, {facts['seed']}"),
        ("begun", created),
        ("written with", f"crbo_ros {facts['package_version']}"),
        ("this report", f"made {datetime.now(timezone.utc).isoformat(timespec='seconds')} by crbo_ros {__version__}, "
                        f"Python {platform.python_version()}, {', '.join(_versions())}, on {platform.system()} "
                        f"{platform.release()}, {platform.machine()}"),
        ("runners", ", ".join(sorted({row.runner for row in run.rows})) or UNKNOWN),
    ]  # fmt: skip
    return Table(["", "*"], lines)


def _versions() -> Iterable[str]:
    for package in ("numpy", "scipy", "numba", "matplotlib"):
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()
