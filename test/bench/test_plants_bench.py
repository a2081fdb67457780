"""`crbo bench plants`: figures where a plant can be made, reasons where not."""

import json

from crbo_ros.cli import main


def test_it_measures_what_can_be_made_and_says_why_not_the_rest(tmp_path, capsys):
    out = tmp_path / "plants.json"
    assert main(["bench", "plants", "--tasks", "furuta", "gym", "--episodes", "3", "--out", str(out)]) == 0
    rows = {(row["task"], row["plant"]): row for row in json.loads(out.read_text())["rows"]}
    assert rows["furuta", "stand_in"]["times_real_time"] > 600.0 / 2.0  # half the promise: tests run on busy machines
    assert rows["furuta", "stand_in"]["episode_s_mean"] == 20.0
    assert "hardware" in rows["furuta", "qube_hardware"]["skipped"]
    assert any("skipped" in row for (task, _), row in rows.items() if task == "gym")
    assert "load average" in capsys.readouterr().out
