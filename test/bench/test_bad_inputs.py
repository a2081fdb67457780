"""Whatever is wrong with a command line or a file is said in a sentence, before anything is started."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from crbo_ros import checks, cli
from crbo_ros.bench import bad_inputs
from crbo_ros.errors import DEBUG, InvalidInput
from crbo_ros.protocol import best_file


def test_bad_input_is_refused_with_a_sentence_by_hand_and_at_random() -> None:
    for case, fate, said in bad_inputs.campaign(240, seed=5):
        assert not bad_inputs.is_wrong(case, fate), f"{case.words} {case.content[:60]!r}: {fate}: {said[-500:]}"


def test_the_whole_text_of_an_error_is_one_flag_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEBUG, "")
    assert cli.main(["inspect", "none"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert cli.main(["inspect", "none", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("text", bad_inputs.NAMES)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="experiment: "):
        checks.name(text, "experiment")


@pytest.mark.parametrize(
    "value", [True, None, "nan", "inf", "1e400", float("nan"), float("inf"), "", "x", [1], 5, -1, 0]
)
def test_a_number_is_finite_and_in_its_range(value: object) -> None:
    with pytest.raises(InvalidInput, match="n: "):
        checks.number(value, "n", 0, 4, above=True)
    assert checks.number("3", "n", 0, 4, whole=True) == 3


def test_a_file_that_is_too_large_or_says_so_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big.json").write_bytes(b" " * (checks.TEXT_LIMIT + 1))
    with pytest.raises(InvalidInput, match="larger than 4 MB"):
        checks.read_json(tmp_path / "big.json")
    (tmp_path / "a.npy").write_bytes(bad_inputs.npy("(100000000000,)"))
    with pytest.raises(InvalidInput, match="800 GB"):
        checks.load_arrays(tmp_path / "a.npy")


def test_nothing_but_a_file_is_ever_replaced(tmp_path: Path) -> None:
    """`--best /dev/full`, as root, made a file of the device."""
    os.mkfifo(pipe := tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (pipe, tmp_path / "folder"):
        with pytest.raises(InvalidInput, match="--best: "):
            checks.writable(path, "--best")
        with pytest.raises(FileExistsError, match="left alone"), checks.whole(path) as part:
            part.touch()
        with pytest.raises(FileExistsError):
            best_file.write(path, {})
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(OSError, match="No such file"), checks.whole(file) as part:
        (part / "in nothing").write_text("half")
    assert file.read_text() == "old"
    with checks.whole(file) as part:
        part.write_text("new")
    assert file.read_text() == "new"


def test_who_signs_is_one_line_that_can_be_read() -> None:
    assert checks.signature("Ann Müller", "--by") == "Ann Müller"
    for text in ("a\nb", "\x1b[2J", "x" * 300):
        with pytest.raises(InvalidInput, match="--by: "):
            checks.signature(text, "--by")


def test_what_others_wrote_is_harmless_in_a_terminal_and_a_spreadsheet() -> None:
    assert checks.printable("a\x1b[2Jb\x07\u202ec\n") == "a?[2Jb??c\n"
    assert [checks.cell(v) for v in ("=1+1", "@x", "-", "fine", -1.5, "")] == ["'=1+1", "'@x", "'-", "fine", -1.5, ""]
