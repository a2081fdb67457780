"""An experiment in the terminal and for other programs."""

import builtins
import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from crbo_ros import cli
from crbo_ros.protocol.store import ExperimentStore
from crbo_ros.view.record import read_run


def test_inspect_shows_metrics_outcomes_and_reasons(make_store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(episodes=7, vetoes=(3,), failures=(5,), pending=1)
    assert cli.main(["inspect", str(store)]) == 0
    out = capsys.readouterr().out
    assert "8: 5 completed, 1 vetoed, 1 failed, 1 pending" in out
    assert "worst case -7 is below the threshold" in out
    assert "motor too hot" in out
    assert len([line for line in out.splitlines() if line[:6].strip().isdigit()]) == 8


def test_inspect_can_be_limited_to_the_last_episodes(make_store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["inspect", str(make_store(episodes=6)), "--last", "2"])
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:6].strip().isdigit()]
    assert rows == ["4", "5"]


def test_inspect_as_json_is_strict_and_complete(make_store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(episodes=5, vetoes=(2,))
    cli.main(["inspect", str(store), "--json"])
    found = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    run: Any = read_run(store)
    assert [p["value"] for p in found["proposals"]] == [e.value if math.isfinite(e.value) else None for e in run.rows]
    assert found["best"]["theta"] == run.best.theta.tolist()
    assert found["experiment"]["theta_0"] == [0.2, 0.3]


def test_inspect_writes_the_best_policy_for_rollout(make_store: Any, tmp_path: Path) -> None:
    from crbo_ros.commands.rollout import read_theta

    store = make_store(episodes=5)
    assert cli.main(["inspect", str(store), "--best", str(tmp_path / "best.json")]) == 0
    run: Any = read_run(store)
    np.testing.assert_array_equal(read_theta(tmp_path / "best.json"), run.best.theta)


def test_inspect_without_a_return_recommends_nothing(
    make_store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(make_store(episodes=0)), "--best", str(tmp_path / "best.json")]) == 1
    assert "no return yet" in capsys.readouterr().err


def test_an_empty_store_can_be_inspected_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ExperimentStore(tmp_path / "experiment.sqlite", owner=True).close()
    assert cli.main(["inspect", str(tmp_path)]) == 0
    assert cli.main(["export", str(tmp_path), "--csv"]) == 0
    assert "holds no experiment yet" in capsys.readouterr().out


def test_csv_keeps_every_number_exactly(make_store: Any, tmp_path: Path) -> None:
    store = make_store(episodes=6, vetoes=(4,), pending=1)
    assert cli.main(["export", str(store), "--csv", "--output", str(tmp_path)]) == 0
    run: Any = read_run(store)
    with open(tmp_path / "proposals.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == list(range(7))
    assert rows[4]["value"] == ""
    assert rows[4]["outcome"] == "vetoed"
    for row, entry in zip(rows, run.rows, strict=True):
        assert [float(row["theta[0]"]), float(row["theta[1]"])] == entry.proposal.theta.tolist()
        assert not row["value"] or float(row["value"]) == entry.value
    with open(tmp_path / "verdicts.csv") as file:
        assert [row["status"] for row in csv.DictReader(file)].count("vetoed") == 1


def test_mcap_holds_the_topics_with_their_definitions(make_store: Any, tmp_path: Path) -> None:
    reader = pytest.importorskip("mcap.reader", reason="pip install mcap mcap-ros2-support")
    decoder = pytest.importorskip("mcap_ros2.decoder").DecoderFactory()
    store = make_store(episodes=6, vetoes=(3,))
    path = tmp_path / "x.mcap"
    assert cli.main(["export", str(store), "--mcap", "--output", str(path), "--namespace", "lab"]) == 0
    run: Any = read_run(store)
    with open(path, "rb") as file:
        opened = reader.make_reader(file, validate_crcs=True, decoder_factories=[decoder])
        assert opened.get_header().profile == "ros2"
        found: dict[str, list[Any]] = {}
        for schema, channel, _, message in opened.iter_decoded_messages():
            assert schema.name.startswith("crbo_ros/msg/")
            found.setdefault(channel.topic, []).append(message)
    assert {topic: len(messages) for topic, messages in found.items()} == {
        "/lab/proposal": 6, "/lab/safety_verdict": 6, "/lab/episode_return": 6, "/lab/optimizer_state": 6,
    }  # fmt: skip
    values = [m.value for m in found["/lab/episode_return"]]
    np.testing.assert_array_equal(values, [e.value for e in run.rows])
    assert list(found["/lab/proposal"][5].theta) == run.rows[5].proposal.theta.tolist()
    assert found["/lab/optimizer_state"][-1].completed == 5
    assert found["/lab/optimizer_state"][-1].vetoed == 1
    bag = yaml.safe_load((tmp_path / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert (bag["storage_identifier"], bag["relative_file_paths"], bag["message_count"]) == ("mcap", ["x.mcap"], 24)
    assert {t["topic_metadata"]["name"]: t["message_count"] for t in bag["topics_with_message_count"]} == dict.fromkeys(
        found, 6
    )


@pytest.mark.ros
def test_mcap_can_be_read_by_ros_itself(make_store: Any, tmp_path: Path) -> None:
    serialization = pytest.importorskip("rclpy.serialization")
    msg = pytest.importorskip("crbo_ros.msg")
    reader = pytest.importorskip("mcap.reader", reason="pip install mcap mcap-ros2-support")
    path = tmp_path / "x.mcap"
    store = make_store(episodes=4, vetoes=(2,))
    cli.main(["export", str(store), "--mcap", "--output", str(path)])
    entries: Any = read_run(store).rows
    verdicts = []
    with open(path, "rb") as file:
        for schema, channel, message in reader.make_reader(file).iter_messages():
            kind = getattr(msg, schema.name.split("/")[-1])
            read = serialization.deserialize_message(message.data, kind)
            if channel.topic == "/episode_return":
                entry = entries[read.proposal_id]
                assert list(read.theta) == entry.proposal.theta.tolist()
                np.testing.assert_array_equal(read.value, entry.episode.value)
                assert (read.reason, read.steps, read.duration) == (entry.episode.reason, 100, 2.0)
            if channel.topic == "/safety_verdict":
                verdicts.append((read.status, read.threshold, read.lipschitz_source))
    V = msg.SafetyVerdict
    assert verdicts == [(s, 0.1, "prior") for s in (V.APPROVED, V.APPROVED, V.VETOED, V.APPROVED)]


@pytest.mark.ros
def test_the_exported_messages_show_the_run_that_is_stored(make_store: Any) -> None:
    pytest.importorskip("crbo_ros.msg")
    from crbo_ros.report.messages import messages
    from crbo_ros.ros.link import fill
    from crbo_ros.view.headline import headline
    from crbo_ros.view.live import LiveView
    from crbo_ros.view.topics import MESSAGES, value_of
    from crbo_ros.view.values import TOPICS

    run: Any = read_run(make_store(episodes=9, vetoes=(3,), failures=(5,), terminated=(7,)))
    view: Any = LiveView()
    for topic, _, _, fields in messages(run):
        view.record([value_of(TOPICS[topic][1], fill(MESSAGES[topic](), fields))])
    stored, heard = run.series(), view.run.series()
    for name in ("bounds", "best", "average", "gamma", "coverage", "threshold"):
        for one, other in zip(getattr(stored, name), getattr(heard, name), strict=True):
            np.testing.assert_array_equal(one, other)
    for outcome, points in stored.points.items():
        np.testing.assert_array_equal(points, heard.points[outcome])
    assert view.run.order == run.order
    assert headline(view.run) == headline(run) != ""
    assert (view.state.completed, view.state.best_id, view.state.vetoed) == (7, run.best.id, 1)
    for one, other in zip(run.rows, view.run.rows, strict=True):
        assert (one.outcome, one.kind, one.remark) == (other.outcome, other.kind, other.remark)
        assert repr(one.verdict) == repr(other.verdict)  # (NaN is not NaN)


def test_layouts_watch_the_namespace_in_which_the_experiment_runs(make_store: Any, tmp_path: Path) -> None:
    assert cli.main(["export", str(make_store(episodes=1, name="my-run")), "--layouts", "--output", str(tmp_path)]) == 0
    xml, text = ((tmp_path / f"{name}").read_text() for name in ("plotjuggler_layout.xml", "foxglove_layout.json"))
    assert '<curve name="/my_run/episode_return/value"' in xml
    panels = json.loads(text)["configById"]
    assert panels["CallService!stop"]["serviceName"] == "/my_run/stop"
    assert panels["RawMessages!verdict"]["topicPath"] == "/my_run/safety_verdict"
    paths = [path["value"] for panel in panels.values() for path in panel.get("paths", [])]
    assert all(path.startswith("/my_run/") for path in paths)


def test_mcap_without_its_package_says_what_to_install(
    make_store: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: Any, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("mcap"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert cli.main(["export", str(make_store(episodes=1)), "--mcap"]) == 1
    assert "pip install mcap mcap-ros2-support" in capsys.readouterr().err
