"""docs/RESULTS.md from the results folder: our metrics beside the paper's statements, task by task.

Reads what the other benchmarks left in `--results`; a part that was not run stays as the document had it, and says so.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from crbo_ros.bench import figures, ranks, statements
from crbo_ros.bench.outside import published
from crbo_ros.bench.sweep import write_atomically
from crbo_ros.bench.tables import load_main, markdown, number, pandas, quartiles, runs_table, write_results

NOT_RUN = "_Not run yet._"
EARLIER = "_As an earlier version left it; not run since._"
FEWEST = 3  # repeats that a method needs to be called the best of the others
POLICY = {"basketball": ("basketball",), "gym": ("pendulum", "cartpole", "mountaincar"), "furuta": ("furuta",)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the benchmarks' results")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where RESULTS.md and images/results go")


def run(args: argparse.Namespace) -> int:
    images, document = args.docs / "images" / "results", args.docs / "RESULTS.md"
    old = document.read_text() if document.exists() else ""
    tables = {name: _policy(args.results / name, name, problems) for name, problems in POLICY.items()}
    sections = [statements.INTRODUCTION, _provenance(args.results), _bars(args.results, tables)]
    sections += [_everywhere(args.results), _outside(args.results / "outside")]
    sections.append(_overview(args.results, [table for table in tables.values() if table is not None]))
    sections.append(_synthetic(args.results / "synthetic"))
    sections.append(_file("The confidence region", args.results / "region", "region", statements.REGION))
    for name, problems in POLICY.items():
        sections += [_task(problem, tables[name], args.results / name) for problem in problems]
        if tables[name] is not None:
            sections.append(f"![{name}](images/results/{name}.png)")
        study = _study(args.results / name / "study", name, problems, images)
        sections.append(study or old_section(old, f"Exploration parameters: {name}"))
    trajectories = args.results / "furuta-trajectories"
    sections.append(_file("Furuta: trajectories", trajectories, "furuta-trajectories", statements.TRAJECTORIES))
    sections.append(_summary("Ablation", args.results / "ablation", statements.ABLATION))
    sections.append(_summary("Computation time", args.results / "time", statements.TIME))
    sections.append(_summary("The worst-case bound", args.results / "bound", statements.BOUND))
    text = "\n\n".join(kept(part, old) for part in sections if part) + "\n"
    for name in (*POLICY, "synthetic", "region", "furuta-trajectories", "overview", "ranks"):
        picture = args.results / name / f"{name}.png"
        if picture.exists():
            images.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, images / picture.name)
    write_atomically(document, text)
    print(f"{document}: {len(text.splitlines())} lines")
    return 0


def kept(section: str, old: str) -> str:
    """The section, or the old document's of that title where it was not run since."""
    title = section.partition("\n")[0].removeprefix("## ")
    return old_section(old, title) or section if section.endswith(NOT_RUN) else section


def old_section(old: str, title: str) -> str:
    """A section of the old document, marked as such; empty if it has none."""
    _, found, rest = old.partition(f"## {title}\n")
    body = rest.partition("\n## ")[0].strip().removeprefix(EARLIER).strip()
    return f"## {title}\n\n{EARLIER}\n\n{body}" if found and body != NOT_RUN else ""


def _everywhere(results: Path) -> str:
    """The five tasks, other people's benchmarks and the hard suite together."""
    records = ranks.load_all(results)
    title = f"## All problems\n\n{statements.EVERYWHERE}"
    if not records:
        return f"{title}\n\n{NOT_RUN}"
    body = ranks.standing(ranks.measures(records), results / "ranks")
    ranked = (results / "ranks" / "ranks.png").exists()
    return f"{title}\n\n{body}" + ("\n\n![mean ranks](images/results/ranks.png)" if ranked else "")


def _outside(folder: Path) -> str:
    records = load_main(folder)
    body = markdown(published(records)) if records else NOT_RUN
    return f"## Other people's benchmarks\n\n{statements.OUTSIDE}\n\n{body}"


def _overview(folder: Path, tables: list[Any]) -> str:
    """All tasks and methods in one picture."""
    if not tables:
        return ""
    figures.save(figures.overview_figure(pandas().concat(tables)), folder / "overview" / "overview")
    return "![all tasks and methods](images/results/overview.png)"


def _policy(folder: Path, name: str, problems: tuple[str, ...]) -> Any:
    """The runs' table of a comparison, its figure drawn anew from all of today's runs; None if there are none."""
    from crbo_ros.bench.policy import COLUMNS, METHODS, NOTES

    records = load_main(folder)
    records = [r for r in records if r["run"]["problem"] in problems and r["run"]["method"] in METHODS]
    if not records:
        return None
    records.sort(
        key=lambda r: (problems.index(r["run"]["problem"]), METHODS.index(r["run"]["method"]), r["run"]["seed"])
    )
    episodes, runs = write_results(folder, records, f"{name}: policy search", COLUMNS, NOTES)
    present = [problem for problem in problems if problem in set(runs["problem"])]
    figures.save(figures.policy_figure(episodes, runs, present), folder / name)
    return runs


def _provenance(results: Path) -> str:
    records = [record for folder in sorted(results.glob("*/")) for record in load_main(folder)]
    if not records:
        return "_No runs yet: `./crbo bench paper`._"
    seeds = sorted({record["run"]["seed"] for record in records})
    machine = records[-1]["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    loads = [record["machine"]["load"][0] for record in records]
    return (
        f"{len(records)} runs, seeds {seeds[0]} to {seeds[-1]} (presets were chosen on other seeds). "
        f"{machine['processor']}, {machine['cores']} cores, load average {min(loads):.1f} to {max(loads):.1f} (other "
        f"work shared the machine), Python {machine['python']}, {versions}. Medians [lower, upper quartile] "
        "over repeats; the number of repeats is given with each. Slow methods have fewer of them."
    )


def _bars(results: Path, tables: dict[str, Any]) -> str:
    """Where CRBO stands on each task."""
    rows = [["task", "repeats", "CRBO's average", "best other's", "CRBO first", "CRBO's J(theta*)", "best other's"]]
    rows[0].append("first or within 3 %")
    for name, problems in POLICY.items():
        for problem in problems:
            runs = tables[name]
            if runs is None or problem not in set(runs["problem"]):
                rows.append([problem, *["not run"] * 7])
                continue
            rows.append([problem, *_standing(runs[runs["problem"] == problem])])
    return f"## Where CRBO stands\n\n{statements.BARS}\n\n{markdown(rows)}"


def _standing(runs: Any) -> list[str]:
    medians = runs.groupby("method")[["average", "final"]].median()
    if "crbo" not in medians.index:
        return ["not run"] * 7
    counts = runs.groupby("method").size()
    rivals = [name for name in medians.index if not name.startswith("crbo") and counts[name] >= FEWEST]
    mine, others = medians.loc["crbo"], medians.loc[rivals]
    if not rivals:
        return ["not run"] * 7
    row = [f"{counts['crbo']} (others {counts[rivals].min()} to {counts[rivals].max()})"]
    for column in ("average", "final"):
        rival = others[column].idxmax()
        theirs = float(others[column].max())
        row += [number(float(mine[column])), f"{number(theirs)} ({figures.label(rival)})"]
        slack = 0.0 if column == "average" else 0.03 * abs(theirs)
        row.append("yes" if mine[column] >= theirs - slack else "**no**")
    return row


def _task(problem: str, runs: Any, folder: Path) -> str:
    title = f"## {problem.capitalize()}\n\n{statements.TASKS[problem]}"
    if runs is None or problem not in set(runs["problem"]):
        return f"{title}\n\n{NOT_RUN}"
    runs = runs[runs["problem"] == problem]
    rows = [["method", "setting", "repeats", "average observed return", "J(theta*)", "below J0 - 10 %", "ended early"]]
    if runs["refused"].sum():
        rows[0].append("refused")
    for (method, setting), group in runs.groupby(["method", "setting"], sort=False):
        columns = ["average", "final", "below", "terminated"] + (["refused"] if runs["refused"].sum() else [])
        cells = [quartiles(group[c], 3 if c in ("average", "final") else 1) for c in columns]
        rows.append([figures.label(method), setting, str(len(group)), *cells])
    start = number(float(runs["start"].median()))
    return f"{title}\n\nOurs, {runs['episodes'].max()} episodes, J(theta_0) = {start}:\n\n{markdown(rows)}"


def _study(folder: Path, name: str, problems: tuple[str, ...], images: Path) -> str:
    """The exploration-parameter study, where it was run."""
    if not (folder / "summary.md").exists():
        return ""
    pictures = []
    for problem in problems:
        if (folder / f"{problem}.png").exists():
            images.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / f"{problem}.png", images / f"study-{problem}.png")
            pictures.append(f"![exploration parameters, {problem}](images/results/study-{problem}.png)")
    section = _summary(f"Exploration parameters: {name}", folder, statements.STUDY)
    return "\n\n".join([section, *pictures])


def _synthetic(folder: Path) -> str:
    records = load_main(folder)
    if not records:
        return f"## Synthetic functions\n\n{statements.SYNTHETIC}\n\n{NOT_RUN}"
    runs = runs_table(records)
    rows = [["function", "method", "functions", "simple regret at 100 (2-D: 50)", "at the end", "average return"]]
    for (problem, method), group in runs.groupby(["problem", "method"]):
        cells = [quartiles(group[c]) for c in ("simple_regret_100", "simple_regret", "average")]
        rows.append([problem, figures.label(method), str(len(group)), *cells])
    five = runs[runs["problem"] == "synthetic-5d"]
    medians = five.groupby("method")[["simple_regret_100", "simple_regret"]].median()
    verdict, last = "", runs["episodes"].max()
    if {"crbo", "bo", "crbo-known", "bo-known"} <= set(medians.index):
        early, late = (medians.loc["bo"] / medians.loc["crbo"].clip(lower=1e-300)).tolist()
        known, known_late = (medians.loc["bo-known"] / medians.loc["crbo-known"].clip(lower=1e-300)).tolist()
        verdict = (
            f"\n\nIn 5-D standard BO's median regret is {early:.3g} times CRBO's after 100 evaluations and {late:.3g} "
            f"times after {last}. Where both know the hyperparameters: {known:.3g} and {known_late:.3g} times."
        )
    picture = "\n\n![synthetic functions](images/results/synthetic.png)"
    return f"## Synthetic functions\n\n{statements.SYNTHETIC}\n\n{markdown(rows)}{verdict}{picture}"


def _file(title: str, folder: Path, name: str, statement: str) -> str:
    """A section from NAME.csv and NAME.png."""
    table = folder / f"{name}.csv"
    if not table.exists():
        return f"## {title}\n\n{statement}\n\n{NOT_RUN}"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    return f"## {title}\n\n{statement}\n\n{markdown(rows)}\n\n![{name}](images/results/{name}.png)"


def _summary(title: str, folder: Path, statement: str) -> str:
    """A section from summary.md, without its heading."""
    path = folder / "summary.md"
    body = path.read_text().split("\n", 1)[1].strip() if path.exists() else NOT_RUN
    return f"## {title}\n\n{statement}\n\n{body}"
