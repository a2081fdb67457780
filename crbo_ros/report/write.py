"""report.html (one file, no network) and report.png from an experiment's store."""

from __future__ import annotations

import base64
import io
import json
import math
import platform
from collections.abc import Iterable
from datetime import datetime, timezone
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crbo_ros import __version__
from crbo_ros.report.figures import PANELS, headline, overview, panel
from crbo_ros.report.trajectories import Replay, replay
from crbo_ros.view.record import Record, read_record

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
tr.vetoed td { color: #B0124A; } tr.failed td, tr.stopped td, tr.expired td { color: #777; }
""".strip()
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
    record = read_record(Path(store))
    folder = Path(folder) if folder is not None else record.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    html, png = folder / "report.html", folder / "report.png"
    png.write_bytes(_png(overview(record)))
    shown = replay(record, dict(options or {})) if trajectories else Replay(note="not asked for")
    html.write_text(page(record, shown), encoding="utf-8")
    return html, png


def page(record: Record, shown: Replay) -> str:
    """The whole HTML page."""
    body = [f"<h1>{escape(record.name)}</h1>", f'<p class="lead">{escape(headline(record))}</p>']
    if record.experiment is None:
        body.append(f"<p>{escape(str(record.path.name))} holds no experiment yet.</p>")
    else:
        body += [_cards(record), _drawing(record, "returns"), _drawing(record, "coverage"), _vetoes(record)]
        body += [_drawing(record, "hyperparameters"), _policy(record), _trajectories(shown), _episodes(record)]
        body.append(_configuration(record))
    return PAGE.format(title=escape(f"{record.name} · CRBO report"), style=STYLE, body="\n".join(body))


# -- sections -----------------------------------------------------------------------------------------


def _cards(record: Record) -> str:
    y, best = record.returns, record.best
    coverage = record.coverage()[1]
    cards = [
        ("episodes", str(len(y))),
        ("return of theta_0", number(y[0]) if len(y) else "–"),
        ("best observed", number(y.max()) if len(y) else "–"),
        ("average return", number(y.mean()) if len(y) else "–"),
        ("recommended", f"proposal {best.id}" if best else "–"),
        ("its expected return", f"{number(best.mean)} ± {number(best.sigma)}" if best else "–"),
        ("bound held", f"{100 * coverage[-1]:.1f} % of {len(coverage)}" if len(coverage) else "–"),
        *((outcome, str(n)) for outcome in OUTCOMES_OF_NOTE if (n := record.count(outcome))),
    ]
    inner = "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for label, value in cards)
    state = f"<p>{escape(record.finished)}</p>" if record.finished else ""
    return f'<div class="cards">{inner}</div>{state}'


OUTCOMES_OF_NOTE = ("terminated", "vetoed", "stopped", "failed", "expired", "pending")


def _drawing(record: Record, name: str) -> str:
    svg = io.BytesIO()
    panel(record, name).savefig(svg, format="svg", metadata={"Date": None})
    source = base64.b64encode(svg.getvalue()).decode()
    title = PANELS[name][0]
    return f'<h2>{title}</h2>\n<img alt="{title}" src="data:image/svg+xml;base64,{source}">'


def _vetoes(record: Record) -> str:
    if not record.vetoes:
        return "<h2>Vetoes</h2><p>None.</p>"
    rows = [[e.id, number(e.bound), _threshold(e.verdict), _distance(e.verdict), e.reason] for e in record.vetoes]
    return "<h2>Vetoes</h2>" + table(["proposal", "worst case", "threshold", "distance", "*reason"], rows)


def _threshold(verdict: dict[str, Any] | None) -> str:
    return number(verdict["threshold"]) if verdict else "–"


def _distance(verdict: dict[str, Any] | None) -> str:
    return number(verdict["distance"]) if verdict else "–"


def _policy(record: Record) -> str:
    text = _drawing(record, "policy")
    if record.best is None:
        return text
    best = record.best
    content = {"proposal": best.id, "theta": best.theta.tolist()}
    how = f"Proposal {best.id}, chosen by {record.best_source}; observed return {number(best.observed)}."
    theta = escape(json.dumps(content))
    return f"{text}<p>{how}</p><details><summary>theta as JSON</summary><pre>{theta}</pre></details>"


def _trajectories(shown: Replay) -> str:
    picture = ""
    if shown.png:
        source = base64.b64encode(shown.png).decode()
        picture = f'<img alt="theta_0 against the best policy" src="data:image/png;base64,{source}">'
    return f"<h2>theta_0 against the best policy</h2><p>{escape(shown.note)}</p>{picture}"


def _episodes(record: Record) -> str:
    columns = ["proposal", "*kind", "*outcome", "return", "bound", "expected", "±", "gamma", "steps", "s", "*remark"]
    rows, classes = [], []
    for entry in record.entries:
        p, episode = entry.proposal, entry.episode
        steps = [str(episode.steps), f"{episode.duration:.2f}"] if episode else ["–", "–"]
        figures = [number(v) for v in (entry.value, entry.bound, p.mean, p.sigma, p.gamma)]
        rows.append([p.id, p.kind, entry.outcome, *figures, *steps, entry.reason or p.reason])
        classes.append(entry.outcome)
    return f'<h2>Episodes</h2><div class="scroll">{table(columns, rows, classes)}</div>'


def _configuration(record: Record) -> str:
    row = record.experiment
    assert row is not None
    created = datetime.fromtimestamp(row["created"], timezone.utc).isoformat(timespec="seconds")
    facts = [
        ("experiment", f"{row['name']} ({row['uid']})"),
        ("task, method, seed", f"{row['task']}, {row['method']}, {row['seed']}"),
        ("begun", created),
        ("written with", f"crbo_ros {row['package_version']}"),
        ("this report", f"crbo_ros {__version__}, Python {platform.python_version()}, {', '.join(_versions())}"),
        ("machine", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        ("runners", ", ".join(sorted({entry.runner for entry in record.entries})) or "–"),
    ]
    settings = escape(json.dumps(row["config"], indent=1, sort_keys=True))
    return f"<h2>Configuration</h2>{table(['', '*'], facts)}<h3>Settings of the method</h3><pre>{settings}</pre>"


def _versions() -> Iterable[str]:
    for package in ("numpy", "scipy", "numba", "matplotlib"):
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


# -- small things -------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """A figure for people; an en dash where there is none."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else "–"


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
