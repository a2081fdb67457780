"""Where each method stands over all problems: ranks, shares of the way, paired differences, from the stored runs.

Reads the runs that the sweeps left (`bench furuta`, `gym`, `basketball`, `outside`, `hard`), runs nothing. For each
problem, over the seeds: the average observed return as a share of the way from J(theta_0) to the best known return,
the same of the recommended policy, the area under the best so far, the worst run, and the share of episodes below
J0 - 10 %; medians with 95 % bootstrap intervals. Methods are ranked on each problem by the median average; two mean
ranks differ at the level 5 % if they are further apart than the critical difference (Nemenyi's test after Friedman's,
Demsar 2006). Paired: CRBO less the other, seed by seed, and how many seeds a difference of that size needs to show
(two-sided 5 %, power 80 %).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from crbo_ros.bench import figures
from crbo_ros.bench.sweep import write_atomically
from crbo_ros.bench.tables import load_main, markdown, number, pandas

FOLDERS = ("basketball", "gym", "furuta", "outside", "hard")
FEWEST = 3  # seeds that a method needs on a problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the benchmarks' results")
    parser.add_argument("--out", type=Path, default=Path("results") / "ranks", help="folder of the tables and picture")


def load_all(results: Path) -> list[dict[str, Any]]:
    """The stored runs of all problems, each method in its main setting."""
    return [record for name in FOLDERS for record in load_main(results / name)]


def measures(records: list[dict[str, Any]]) -> Any:
    """A row for each run; `share` and `final_share` are shares of the way from J(theta_0) to the best known return."""
    rows = [_measure(record) for record in records]
    table = pandas().DataFrame(rows)
    for problem, group in table.groupby("problem"):
        start = float(group["start"].median())
        known = group["top"].dropna()
        top = float(known.median()) if len(known) else float(group["final"].max())
        way = max(top - start, 1e-12)
        mine = table["problem"] == problem
        table.loc[mine, "share"] = (table.loc[mine, "average"] - start) / way
        table.loc[mine, "final_share"] = (table.loc[mine, "final"] - start) / way
        table.loc[mine, "area"] = (table.loc[mine, "area"] - start) / way
    return table


def _measure(record: dict[str, Any]) -> dict[str, Any]:
    run, rows = record["run"], record["rows"]
    values = np.array([np.nan if row["return"] is None else row["return"] for row in rows], dtype=float)
    start, final = (np.array([np.nan if v is None else v for v in record[k]], dtype=float) for k in ("start", "final"))
    j0 = float(np.nanmean(start))
    best = np.maximum.accumulate(np.where(np.isnan(values), -np.inf, values))
    first = rows[0].get("regret") if rows else None
    return {
        "problem": run["problem"],
        "method": run["method"],
        "seed": run["seed"],
        "average": float(np.nanmean(values)),
        "final": float(np.nanmean(final)) if np.isfinite(final).any() else j0,
        "start": j0,
        "area": float(np.mean(best[np.isfinite(best)])),
        "below": float(np.mean(~(values >= j0 - 0.1 * abs(j0)))),
        "top": math.nan if first is None else j0 + first,
    }


def median_interval(values: Any, seed: int = 0) -> str:
    """ "median [95 % bootstrap interval]"."""
    array = np.asarray(values, dtype=float)
    if len(array) < FEWEST:
        return f"{number(float(np.median(array)))} ({len(array)})"
    rng = np.random.default_rng(seed)
    medians = np.median(array[rng.integers(len(array), size=(2000, len(array)))], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return f"{number(float(np.median(array)))} [{number(float(low))}, {number(float(high))}]"


def seeds_needed(gaps: Any) -> float:
    """How many pairs a t test needs to see the mean of these differences (5 %, power 80 %)."""
    mean, deviation = float(np.mean(gaps)), float(np.std(gaps, ddof=1))
    if deviation == 0.0:
        return 2.0
    return math.inf if mean == 0.0 else max(2.0, math.ceil((1.96 + 0.84) ** 2 * (deviation / mean) ** 2))


def rank_table(table: Any, column: str) -> Any:
    """Ranks (1 is best) by the median of a column, a row each problem, of the methods that were run on all of them."""
    counts = table.groupby(["problem", "method"]).size().unstack()
    everywhere = [name for name in counts.columns if (counts[name].fillna(0) >= FEWEST).all()]
    medians = table[table["method"].isin(everywhere)].groupby(["problem", "method"])[column].median().unstack()
    return medians.rank(axis=1, ascending=False)


def critical_difference(methods: int, problems: int, level: float = 0.05) -> float:
    """Nemenyi's: q sqrt(k (k + 1) / (6 N)), q the studentised range over sqrt 2."""
    if methods < 2 or problems < 2:
        return math.nan
    q = float(stats.studentized_range.ppf(1.0 - level, methods, 1e6)) / math.sqrt(2.0)
    return q * math.sqrt(methods * (methods + 1) / (6.0 * problems))


def rank_figure(means: Any, gap: float) -> Any:
    """Mean ranks as dots, CRBO's with the bar within which others are not told apart from it."""
    made, axes = figures.figure(1, width=7.0, height=0.9 + 0.28 * len(means))
    axis = axes[0][0]
    for line, (method, value) in enumerate(means.items()):
        axis.plot(value, line, "o", color=figures.COLOURS.get(str(method), "grey"))
        if method == "crbo" and math.isfinite(gap):
            axis.axvspan(value - gap, value + gap, color=figures.COLOURS["crbo"], alpha=0.12)
    axis.set_yticks(range(len(means)), [figures.label(str(name)) for name in means.index])
    axis.invert_yaxis()
    axis.set_xlim(0.8, float(means.max()) + 0.4)
    axis.set_xlabel("mean rank of the average observed return (shaded: not told apart from CRBO)")
    axis.grid(alpha=0.25)
    return made


def paired_rows(table: Any, medians: Any = None) -> list[list[str]]:
    """CRBO less each other method, by problem, seed by seed; with `medians` (problem, method) the best other alone."""
    rows = [
        ["problem", "against", "seeds", "average: CRBO less the other", "seeds needed", "final: CRBO less the other"]
    ]
    for problem, group in table.groupby("problem", sort=False):
        own = group[group["method"] == "crbo"].set_index("seed")
        rivals = [name for name in dict.fromkeys(group["method"]) if not str(name).startswith("crbo")]
        if medians is not None and rivals:
            rivals = [medians.loc[problem, rivals].astype(float).idxmax()]
        for method in rivals:
            other = group[group["method"] == method].set_index("seed")
            seeds = sorted(set(own.index) & set(other.index))
            if len(seeds) < FEWEST:
                continue
            cells = []
            for column in ("share", "final_share"):
                gaps = (own.loc[seeds, column] - other.loc[seeds, column]).to_numpy(float)
                cells.append((gaps, f"{gaps.mean():+.3f} +- {gaps.std(ddof=1) / math.sqrt(len(gaps)):.3f}"))
            needed = seeds_needed(cells[0][0])
            shown = "-" if math.isinf(needed) else f"{needed:.0f}"
            rows.append([str(problem), figures.label(str(method)), str(len(seeds)), cells[0][1], shown, cells[1][1]])
    return rows


def standing(table: Any, folder: Path) -> str:
    """Who stands where over all problems, and its picture in `folder`."""
    ranks, finals = rank_table(table, "share"), rank_table(table, "final_share")
    means = ranks.mean().sort_values()
    if means.empty:
        return f"No method was run on all {table['problem'].nunique()} problems with at least {FEWEST} seeds: no ranks."
    gap = critical_difference(len(means), len(ranks))
    figures.save(rank_figure(means, gap), folder / "ranks")
    rows = [["method", "mean rank, average", "mean rank, final", "first in average on"]]
    for method, value in means.items():
        first = f"{int((ranks[method] == 1.0).sum())} of {len(ranks)}"
        rows.append([figures.label(str(method)), f"{value:.2f}", f"{finals[method].mean():.2f}", first])
    medians = table.groupby(["problem", "method"], sort=False)["share"].median().unstack(sort=False)
    order = [*means.index, *(name for name in medians.columns if name not in means.index)]
    matrix = [["problem", *(figures.label(str(name)) for name in order)]]
    for problem, row in medians[order].iterrows():
        best = float(row.max())
        matrix.append([str(problem), *(_cell(float(value), best) for value in row)])
    seeds = table.groupby(["problem", "method"]).size()
    return (
        f"{len(ranks)} problems, {len(means)} methods that were run on all of them with at least {FEWEST} seeds "
        f"(here {seeds.min()} to {seeds.max()}), {len(table)} runs in all, seeds {table['seed'].min()} to "
        f"{table['seed'].max()}. Two mean ranks differ at the level 5 % if they are {gap:.2f} apart or "
        f"more.\n\n{markdown(rows)}\n\n"
        "The average observed return as a share of the way from J(theta_0) to the best known return, medians over the "
        "seeds, the best of each problem in bold. The best known return is the optimum where it is known, else the "
        f"best recommended policy of any run.\n\n{markdown(matrix)}\n\n"
        "CRBO less the best other in that table, paired by seed, in shares of the way (mean +- standard error), with "
        "the number of seeds that a difference of that size needs to show (5 %, power 80 %):\n\n"
        f"{markdown(paired_rows(table, medians))}"
    )


def _cell(value: float, best: float) -> str:
    text = "" if math.isnan(value) else f"{value:.2f}"
    return f"**{text}**" if text and value == best else text


def details(table: Any) -> str:
    """Every method on every problem, and CRBO against each of them."""
    columns = {"share": "share of the way, average", "final_share": "share, final", "area": "area under the best"}
    shares = [["problem", "method", "seeds", *columns.values(), "worst average", "below J0 - 10 %"]]
    for (problem, method), group in table.groupby(["problem", "method"], sort=False):
        cells = [median_interval(group[column]) for column in columns]
        worst, below = number(float(group["share"].min())), f"{100.0 * float(group['below'].mean()):.0f} %"
        shares.append([str(problem), figures.label(str(method)), str(len(group)), *cells, worst, below])
    return (
        f"Medians over the seeds with 95 % bootstrap intervals, and the worst seed's average.\n\n{markdown(shares)}\n\n"
        f"Paired by seed, mean +- standard error, in shares of the way:\n\n{markdown(paired_rows(table))}"
    )


def run(args: argparse.Namespace) -> int:
    records = load_all(args.results)
    if not records:
        print(f"{args.results}: no runs yet; `crbo bench paper`, `bench outside` and `bench hard` make them")
        return 1
    table = measures(records)
    text = standing(table, args.out)
    write_atomically(args.out / "summary.md", f"# Where each method stands\n\n{text}\n")
    write_atomically(args.out / "details.md", f"# Each method on each problem\n\n{details(table)}\n")
    print(f"{text}\n\n{args.out}: summary.md, details.md, ranks.png")
    return 0
