"""Reports: one file that shows the run, whatever state the store is in."""

import re
import struct
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros import cli
from crbo_ros.numbers import number
from crbo_ros.protocol.store import ExperimentStore
from crbo_ros.report import write_report
from crbo_ros.report.trajectories import replay
from crbo_ros.report.write import TEMPLATES
from crbo_ros.view.answers import at_bounds, behaviour, bounds_text, describe
from crbo_ros.view.colors import (
    AVERAGE,
    BEST,
    BOUND,
    COVERAGE,
    GAMMA,
    LINES,
    OUTCOME_COLORS,
    START,
    WORDS,
    contrast,
)  # fmt: skip
from crbo_ros.view.record import find_store, read_run


def png_size(path: Any) -> Any:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def test_the_report_shows_returns_vetoes_policy_and_versions(make_store: Any) -> None:
    store = make_store(episodes=9, vetoes=(4,), failures=(6,), terminated=(7,))
    html, png = write_report(store)
    text = html.read_text()
    assert png_size(png) == (1400, 900)
    for part in ("Returns", "Bound and caution", "Hyperparameters", "Best policy", "Configuration"):
        assert f"<h2>{part}</h2>" in text
    assert "worst case -7 is below the threshold 0.1" in text
    assert "motor too hot" in text
    assert "chosen by posterior mean" in text
    assert "&#34;gamma&#34;: 0.4" in text
    assert text.count("data:image/svg+xml") == 2 * 4  # for large screens and for small ones


def test_the_report_begins_with_what_a_person_asks_first(make_store: Any) -> None:
    text = write_report(make_store(episodes=9, vetoes=(4,), failures=(6,)), trajectories=False)[0].read_text()
    questions = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text)
    assert [q for q, _ in questions] == [
        "Is it better?", "How sure is that?", "Is it worth going on?", "What changed in the behaviour?",
        "What was spent?", "Which parameters sit on their bounds?",
    ]  # fmt: skip
    assert questions[0][1].startswith("yes: ")
    assert "another episode is expected to gain" in questions[2][1]
    assert "7 episodes" in questions[4][1]
    assert "1 vetoes; 1 without a return" in questions[4][1]
    assert text.index("<dl>") < text.index("<h2>")


def test_what_changed_is_told_by_parameters_and_safety_signals(make_store: Any) -> None:
    run = read_run(make_store(episodes=6))
    assert run.best is not None
    assert run.experiment is not None
    run.best = replace(run.best, theta=np.array([0.2, 0.9]))
    assert behaviour(run) == "1 of 2 parameters moved by more than 10.0 % of their range, most theta[1] 0.3 → 0.9"
    run.names = ["kp", "ki"]
    for row, theta, value in ((run.rows[0], run.experiment["theta_0"], 3.0), (run.rows[5], run.best.theta, 2.0)):
        assert row.episode is not None
        row.episode = replace(
            row.episode, theta=theta, signal_names=("current",), signal_values=(value,), signal_limits=(5.0,)
        )
    assert behaviour(run).endswith("most ki 0.3 → 0.9; current up to 3 → 2")


def test_a_pointer_on_an_episode_sees_its_verdict_and_its_data(make_store: Any) -> None:
    store = make_store(episodes=9, vetoes=(4,), failures=(6,), pending=1)
    text = write_report(store, trajectories=False)[0].read_text()
    said = [unescape(words) for words in re.findall(r"<circle [^>]*><title>(.*?)</title>", text, re.DOTALL)]
    rows = read_run(store).rows
    assert said == 2 * [describe(row) for row in rows]
    assert said[4].startswith("proposal 4 (")
    assert "vetoed: worst case -7 is below the threshold 0.1" in said[4]
    assert "motor too hot" in said[6]
    assert f"return {number(rows[8].value)}, expected " in said[8]


def test_words_and_points_stand_out_from_the_paper() -> None:
    """WCAG 2: 4.5 to 1 for words, 3 to 1 for what is drawn."""
    paper, style = "#FFFFFF", (TEMPLATES / "report.css").read_text()
    words = [c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:]) for c in re.findall(r"\bcolor: (#\w+)", style)]
    assert len(words) >= 4
    assert min(contrast(color, paper) for color in (*words, OUTCOME_COLORS["vetoed"])) >= WORDS
    drawn = [*OUTCOME_COLORS.values(), BEST, AVERAGE, BOUND, GAMMA, COVERAGE, START]
    assert min(contrast(color, paper) for color in drawn) >= LINES


def test_parameters_on_the_edge_of_the_domain_are_named(make_store: Any) -> None:
    run = read_run(make_store(episodes=5))
    assert run.best is not None
    run.best = replace(run.best, theta=np.array([-1.0, 0.9999]))
    assert at_bounds(run) == ["theta[0] (lower)", "theta[1] (upper)"]
    run.names = ["kp", "ki"]
    assert bounds_text(run).startswith("2 of 2: kp (lower), ki (upper)")
    run.best = replace(run.best, theta=np.array([0.0, 0.5]))
    assert bounds_text(run) == "none"


def test_the_report_is_self_contained_and_takes_names_as_text(make_store: Any) -> None:
    text = write_report(make_store(episodes=2, name="<b>bold<b>"), trajectories=False)[0].read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text


@pytest.mark.parametrize("episodes", [0, 1])
def test_a_run_that_has_hardly_begun_can_be_reported(make_store: Any, episodes: Any) -> None:
    html, png = write_report(make_store(episodes=episodes, pending=1), trajectories=False)
    assert "pending" in html.read_text()
    assert png.stat().st_size > 10_000


def test_a_store_without_an_experiment_can_be_reported(tmp_path: Path) -> None:
    store = tmp_path / "new" / "experiment.sqlite"
    ExperimentStore(store, owner=True).close()
    html, png = write_report(store)
    assert "no experiment yet" in html.read_text()
    assert png.exists()


def test_only_vetoes_can_be_reported(make_store: Any) -> None:
    html, _ = write_report(make_store(episodes=3, vetoes=(0, 1, 2)), trajectories=False)
    assert html.read_text().count('<tr class="vetoed">') == 3


def test_the_record_has_the_metrics_of_the_run(make_store: Any) -> None:
    run: Any = read_run(make_store(episodes=9, vetoes=(4,), failures=(6,), pending=1))
    assert [entry.id for entry in run.counted] == [0, 1, 2, 3, 5, 7, 8]
    assert run.counts() == {"completed": 7, "vetoed": 1, "failed": 1, "pending": 1}
    ids, coverage = run.series().coverage
    held = [entry.value >= entry.bound for entry in run.counted if np.isfinite(entry.bound)]
    assert ids[0] == 2  # theta_0, which comes twice, has no bound
    assert coverage[-1] == pytest.approx(np.mean(held))
    assert run.metric("gamma")[1][0] == 0.4
    assert run.best.observed == run.rows[run.best.id].value


def test_reading_leaves_a_running_experiment_alone(make_store: Any) -> None:
    path = make_store(episodes=3)
    writer = ExperimentStore(path, owner=True)
    before = writer.database.query("SELECT count(*) FROM events")
    read_run(path)
    writer.set_flag("x", "still writable")
    assert writer.database.query("SELECT count(*) FROM events") == before
    writer.close()


def test_a_task_that_cannot_be_made_costs_only_its_picture(make_store: Any) -> None:
    store = make_store(episodes=2)
    assert "no task is called 'toy'" in replay(read_run(store)).note


@pytest.mark.slow
def test_a_simulated_task_shows_theta_0_against_best(make_store: Any) -> None:
    html, _ = write_report(make_store(episodes=12, task="furuta"))
    text = html.read_text()
    assert "data:image/png" in text
    assert "Simulated again on" in text


def test_experiments_are_found_by_folder_file_and_name(
    make_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(episodes=1, name="experiments/furuta")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crbo_ros").symlink_to(tmp_path / "experiments")  # ROS_HOME's own folder for us
    for variable, folder in (("CRBO_HOME", "experiments"), ("ROS_HOME", "")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
        for given in (store, store.parent, "furuta", "experiments/furuta"):
            assert find_store(given).resolve() == store
        monkeypatch.delenv(variable)
    assert find_store("furuta", tmp_path / "experiments").resolve() == store


def test_an_unknown_experiment_is_one_line_with_what_there_is(
    make_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(episodes=1, name="experiments/furuta")
    monkeypatch.setenv("CRBO_HOME", str(tmp_path / "experiments"))
    assert cli.main(["report", "frutta"]) == 1
    assert capsys.readouterr().err.strip().endswith(f"{tmp_path}/experiments has: furuta")


def test_the_command_names_what_it_wrote(make_store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(make_store(episodes=2)), "--folder", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / name) for name in ("report.html", "report.png")]
