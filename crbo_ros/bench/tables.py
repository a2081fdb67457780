"""From the files of a sweep to tables: one row per episode, one per run, and medians with quartiles."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.problems import main_setting
from crbo_ros.bench.sweep import Run, machine, write_atomically
from crbo_ros.errors import MissingDependency


def pandas() -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependency("the tables of a benchmark need pandas: pip install pandas") from None
    return pd


def load(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The records of finished runs."""
    return [json.loads(path.read_text()) for path in paths]


def load_main(folder: Path) -> list[dict[str, Any]]:
    """The runs of the comparison in FOLDER/runs: each method in its main setting, made with the tasks and presets of
    today; of runs with different budgets on a task, those with the longest."""
    records, longest = [], Counter[str]()
    for path in sorted((folder / "runs").glob("*.json")):
        record = json.loads(path.read_text())
        run = Run(**record["run"])
        if run.label == main_setting(run.problem, run.method)[0] and run.file == path.name:
            records.append(record)
            longest[run.problem] = max(longest[run.problem], run.episodes)
    return [record for record in records if record["run"]["episodes"] == longest[record["run"]["problem"]]]


def episodes_table(records: list[dict[str, Any]]) -> Any:
    """Tidy: problem, method, setting, seed, episode, return, average (observed so far), best (observed so far), ..."""
    pd = pandas()
    frames = []
    for record in records:
        run, frame = record["run"], pd.DataFrame(record["rows"])
        for key in ("seed", "label", "method", "problem"):
            frame.insert(0, "setting" if key == "label" else key, run[key])
        value = frame["return"].astype(float)
        # an episode that gave no return leaves average and best as they were
        frame["average"] = value.expanding().mean()
        frame["best"] = value.cummax().ffill()
        if "regret" in frame:
            frame["simple_regret"] = frame["regret"].cummin()
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def runs_table(records: list[dict[str, Any]]) -> Any:
    """One row per run: average observed return, J(theta*), J(theta_0), falls, refusals, episodes below J0 - 10 %,
    CPU."""
    return pandas().DataFrame([_run_row(record) for record in records])


def _run_row(record: dict[str, Any]) -> dict[str, Any]:
    run, rows = record["run"], record["rows"]
    values = np.array([np.nan if row["return"] is None else row["return"] for row in rows])
    start, final = (np.array([np.nan if v is None else v for v in record[key]]) for key in ("start", "final"))
    j0 = float(np.nanmean(start)) if len(start) else np.nan
    row = {
        "problem": run["problem"],
        "method": run["method"],
        "setting": run["label"],
        "seed": run["seed"],
        "episodes": len(rows),
        "average": float(np.nanmean(values)),
        "final": float(np.nanmean(final)) if np.isfinite(final).any() else np.nan,
        "start": j0,
        "best_observed": float(np.nanmax(values)),
        "terminated": sum(r["end"] == "terminated" for r in rows),
        "refused": int(np.isnan(values).sum()),
        "below": int(np.sum(values < j0 - 0.1 * abs(j0))),
        "cpu_per_proposal": float(np.mean([r["cpu_seconds"] for r in rows[1:]] or [np.nan])),
    }
    for name, key in (("coverage", "worst_case"), ("coverage_paper", "worst_case_paper")):
        pairs = [(r["return"], r[key]) for r in rows if r[key] is not None and r["return"] is not None]
        row[name] = float(np.mean([value >= bound for value, bound in pairs])) if pairs else np.nan
    if rows and "regret" in rows[0]:
        regrets = [np.inf if r["regret"] is None else r["regret"] for r in rows]  # (an episode that failed has none)
        row["simple_regret_100"], row["simple_regret"] = min(regrets[:100]), min(regrets)
        row["final_regret"] = record["final_regret"]
    return row


def quartiles(values: Iterable[float], digits: int = 3) -> str:
    """ "median [lower quartile, upper quartile]"; small numbers in scientific notation."""
    array = np.asarray([v for v in values if v is not None and np.isfinite(v)], dtype=float)
    if not len(array):
        return "-"
    return "{} [{}, {}]".format(*(number(v, digits) for v in np.percentile(array, [50, 25, 75])))


def number(value: float, digits: int = 3) -> str:
    if value != 0.0 and abs(value) < 10.0**-digits:
        return f"{value:.1e}"
    return f"{value:.{digits if abs(value) < 10 else 1}f}"


def summarise(runs: Any, columns: dict[str, str]) -> list[list[str]]:
    """Rows (problem, method, setting, repeats, then median [quartiles] of the columns), in the order of first
    appearance."""
    rows = [["task", "method", "setting", "repeats", *columns.values()]]
    for (problem, method, setting), group in runs.groupby(["problem", "method", "setting"], sort=False):
        rows.append([problem, method, setting, str(len(group)), *(quartiles(group[c]) for c in columns)])
    return rows


def markdown(rows: list[list[str]]) -> str:
    """A table; the first row is its header."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def write_results(folder: Path, records: list[dict[str, Any]], title: str, columns: dict[str, str], notes: str) -> Any:
    """episodes.csv, runs.csv and summary.md of a sweep; returns (episodes, runs)."""
    episodes, runs = episodes_table(records), runs_table(records)
    if not len(runs):
        return episodes, runs
    order = list(dict.fromkeys(runs["problem"]))
    runs = runs.sort_values("problem", key=lambda c: c.map(order.index), kind="stable")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "episodes.csv", episodes.to_csv(index=False, float_format="%.8g"))
    write_atomically(folder / "runs.csv", runs.to_csv(index=False, float_format="%.8g"))
    table = markdown(summarise(runs, columns))
    facts = machine()
    load = sorted(record["machine"]["load"][0] for record in records)
    text = f"""# {title}

Median [lower quartile, upper quartile] over repeats. {notes}

{table}

Command: `crbo {" ".join(sys.argv[1:])}`. {len(records)} runs, seeds {runs["seed"].min()} to {runs["seed"].max()}.
{facts["processor"]}, {facts["cores"]} cores; load average while running {load[0]} to {load[-1]};
Python {facts["python"]}, {", ".join(f"{k} {v}" for k, v in facts["versions"].items())}; {facts["date"]} UTC.
"""
    write_atomically(folder / "summary.md", text)
    print(table)
    return episodes, runs
