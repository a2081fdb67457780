"""report.html (one file, no network) and report.png from an experiment's store."""

from __future__ import annotations

import base64
import io
import json
import platform
from collections.abc import Iterable
from datetime import datetime, timezone
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crbo_ros import __version__
from crbo_ros.report.figures import CONTRACT, PANELS, headline, overview, panel
from crbo_ros.report.trajectories import Replay, replay
from crbo_ros.view.colors import OUTCOME_COLORS
from crbo_ros.view.contract import contract_words
from crbo_ros.view.numbers import UNKNOWN, number, percent
from crbo_ros.view.record import read_run
from crbo_ros.view.run_view import RunView

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 68em; margin: 2em auto;
       padding: 0 1em; }
h1 { margin-bottom: 0; } h2 { margin-top: 1.8em; border-bottom: 1px solid #ddd; }
p.lead { color: #555; margin-top: .3em; } img { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15em .7em .15em 0; text-align: right; vertical-align: top; }
th { color: #555; font-weight: 600; border-bottom: 1px solid #ccc; } td.text, th.text { text-align: left; }
.cards { display: flex; flex-wrap: wrap; gap: 1em; margin: 1em 0; }
.cards div { border: 1px solid #ddd; border-radius: 6px; padding: .5em .9em; min-width: 7em; }
.cards b { display: block; font-size: 1.35em; } .cards span { color: #666; font-size: .85em; }
.scroll { max-height: 32em; overflow: auto; } pre { background: #f6f6f6; padding: .8em; overflow: auto; }
tr.failed td, tr.stopped td, tr.returned td, tr.expired td { color: #777; }
""".strip()
STYLE += f"\ntr.vetoed td {{ color: {OUTCOME_COLORS['vetoed']}; }}"
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,"><style>{style}</style></head><body>
{body}
</body></html>
"""


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
    html.write_text(page(run, shown), encoding="utf-8")
    return html, png


def page(run: RunView, shown: Replay) -> str:
    """The whole HTML page."""
    body = [f"<h1>{escape(run.name)}</h1>", f'<p class="lead">{escape(headline(run))}</p>']
    if run.experiment is None:
        body.append(f"<p>{escape(str(run.path.name))} holds no experiment yet.</p>")
    else:
        body += [_cards(run), _drawing(run, "returns"), _drawing(run, "coverage"), _contract(run), _vetoes(run)]
        body += [_drawing(run, "hyperparameters"), _policy(run), _trajectories(shown), _episodes(run)]
        body.append(_configuration(run))
    return PAGE.format(title=escape(f"{run.name} · CRBO report"), style=STYLE, body="\n".join(body))


# -- sections -----------------------------------------------------------------------------------------


def _cards(run: RunView) -> str:
    y, best, coverage, counts = run.returns, run.best, run.series().coverage[1], run.counts()
    cards = [
        ("episodes", str(len(y))),
        ("return of theta_0", number(y[0]) if len(y) else UNKNOWN),
        ("best observed", number(y.max()) if len(y) else UNKNOWN),
        ("average return", number(y.mean()) if len(y) else UNKNOWN),
        ("recommended", f"proposal {best.id}" if best else UNKNOWN),
        ("its expected return", f"{number(best.mean)} ± {number(best.sigma)}" if best else UNKNOWN),
        ("bound held", f"{percent(coverage[-1])} of {len(coverage)}" if len(coverage) else UNKNOWN),
        *((outcome, str(n)) for outcome, n in counts.items() if outcome != "completed"),
    ]
    inner = "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for label, value in cards)
    state = f"<p>{escape(run.finished)}</p>" if run.finished else ""
    return f'<div class="cards">{inner}</div>{state}'


def _drawing(run: RunView, name: str) -> str:
    svg = io.BytesIO()
    panel(run, name).savefig(svg, format="svg", metadata={"Date": None})
    source = base64.b64encode(svg.getvalue()).decode()
    title = CONTRACT[0] if name == "contract" else PANELS[name][0]
    return f'<h2>{title}</h2>\n<img alt="{title}" src="data:image/svg+xml;base64,{source}">'


def _contract(run: RunView) -> str:
    words = table(["*", "*"], contract_words(run.contract))
    active = run.contract is not None and run.contract.contract.active and run.contract.ids
    return (_drawing(run, "contract") if active else "<h2>Contract</h2>") + words


def _vetoes(run: RunView) -> str:
    if not run.vetoes:
        return "<h2>Vetoes</h2><p>None.</p>"
    rows = []
    for row in run.vetoes:
        grounds = [number(v) for v in (row.verdict.threshold, row.verdict.distance)] if row.verdict else [UNKNOWN] * 2
        rows.append([row.id, number(row.bound), *grounds, row.reason])
    return "<h2>Vetoes</h2>" + table(["proposal", "worst case", "threshold", "distance", "*reason"], rows)


def _policy(run: RunView) -> str:
    text = _drawing(run, "policy")
    if run.best is None:
        return text
    best = run.best
    content = {"proposal": best.id, "theta": best.theta.tolist()}
    how = f"Proposal {best.id}, chosen by {run.best_source}; observed return {number(best.observed)}."
    theta = escape(json.dumps(content))
    return f"{text}<p>{how}</p><details><summary>theta as JSON</summary><pre>{theta}</pre></details>"


def _trajectories(shown: Replay) -> str:
    picture = ""
    if shown.png:
        source = base64.b64encode(shown.png).decode()
        picture = f'<img alt="theta_0 against the best policy" src="data:image/png;base64,{source}">'
    return f"<h2>theta_0 against the best policy</h2><p>{escape(shown.note)}</p>{picture}"


def _episodes(run: RunView) -> str:
    columns = ["proposal", "*kind", "*outcome", "return", "bound", "expected", "±", "gamma", "steps", "s", "*remark"]
    rows, classes = [], []
    for row in run.rows:
        p, episode = row.proposal, row.episode
        steps = [str(episode.steps), f"{episode.duration:.2f}"] if episode else [UNKNOWN, UNKNOWN]
        expected = (p.mean, p.sigma, p.gamma) if p else (None, None, None)
        metrics = [number(v) for v in (row.value, row.bound, *expected)]
        rows.append([row.id, row.kind, row.outcome, *metrics, *steps, row.remark])
        classes.append(row.outcome)
    return f'<h2>Episodes</h2><div class="scroll">{table(columns, rows, classes)}</div>'


def _configuration(run: RunView) -> str:
    facts = run.experiment
    assert facts is not None
    created = datetime.fromtimestamp(facts["created"], timezone.utc).isoformat(timespec="seconds")
    lines = [
        ("experiment", f"{facts['name']} ({facts['uid']})"),
        ("task, method, seed", f"{facts['task']}, {facts['method']}, {facts['seed']}"),
        ("begun", created),
        ("written with", f"crbo_ros {facts['package_version']}"),
        ("this report", f"crbo_ros {__version__}, Python {platform.python_version()}, {', '.join(_versions())}"),
        ("machine", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        ("runners", ", ".join(sorted({row.runner for row in run.rows})) or UNKNOWN),
    ]
    settings = escape(json.dumps(facts["config"], indent=1, sort_keys=True))
    return f"<h2>Configuration</h2>{table(['', '*'], lines)}<h3>Settings of the method</h3><pre>{settings}</pre>"


def _versions() -> Iterable[str]:
    for package in ("numpy", "scipy", "numba", "matplotlib"):
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


# -- small things -------------------------------------------------------------------------------------


def table(columns: list[str], rows: Iterable[Iterable[Any]], classes: list[str] | None = None) -> str:
    """An HTML table; a column whose name begins with * is text (left-aligned)."""
    kinds = [' class="text"' if name.startswith("*") else "" for name in columns]
    head = "".join(f"<th{kind}>{escape(name.lstrip('*'))}</th>" for name, kind in zip(columns, kinds, strict=True))
    body = []
    for number_, row in enumerate(rows):
        kind = f' class="{escape(classes[number_])}"' if classes else ""
        cells = "".join(f"<td{k}>{escape(str(cell))}</td>" for cell, k in zip(row, kinds, strict=True))
        body.append(f"<tr{kind}>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()
