"""Bad input of every kind, by hand and by a generator: each must be refused with a sentence, in time.

    ./crbo bench bad-inputs --count 1000 --seed 1

Each case is a command line, with a file where it needs one, run in this process by the command line's own entry. Held
against it: an exit code other than 0 (a case here is wrong by construction, or it says so), a sentence, no traceback,
nothing "unexpected", no more than `LIMIT` s. Commands that would begin to run are stopped where the graph would be
started: whatever gets there was accepted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
LIMIT = 20.0  # s; a machine that is busy with other things may stall for some of it
REFUSED, ACCEPTED, TRACEBACK, HANG = "refused", "accepted", "traceback", "hang"
NAMES = [
    "1", "2024-05-01", "true", "null", "~", "..", "../x", "a/b", "", " ", "a b", "ä", "日本", "x" * 300, "\x1b[31m",
    "-x",
    ".hidden", "nan", "1e5", "a\nb", "'", '"', "$(id)", "*", "0x10", "{}", "[]", "a:b",
]  # fmt: skip
NUMBERS = ["nan", "inf", "-inf", "1e400", "abc", "1,5", "0x", "--", "1e", "[]", "{}", "٣x", "1_", "None"]
YAMLS = [
    "3", "a", "[1, 2]", "a: b", "{", "a: [", "\t- x", "/**: 3", "/**: []", "/**:\n  ros__parameters: 3", "- a\n- b",
    "/**:\n  ros__parameters:\n    j_minn: 1.0", "/**:\n  ros__parameters:\n    seed: [",
    "/**:\n  ros__parameters: {seed: 1}\n/**:\n  ros__parameters: {seed: 2}", "a: &a [*a]", "? [1]\n: 2",
    "/**: {ros__parameters: {experiment: 1}}", "/**: {ros__parameters: {experiment: 2024-05-01}}", "%YAML 9.9\n---\n",
    "/**: {ros__parameters: {seed: .nan}}", "!!python/object:os.system x", "[" * 3000, "a: " * 50, "\x00", "\ufffe",
    "/**/safety_monitorr: {ros__parameters: {j_min: 1.0}}", "/**/optimizer: {ros__parameters: {gamma: .inf}}",
    "/**/episode_runner: {ros__parameters: {heartbeat_timeout: .inf}}",
    "/**/optimizer: {ros__parameters: {seed: -1}}",
    "/**/episode_runner: {ros__parameters: {heartbeat_timeout: 0.05}}", "/**/optimizer: {ros__parameters: {seed: x}}",
    "/**/safety_monitor: {ros__parameters: {lipschitz: .inf}}", "/**/optimizer: {ros__parameters: {gamma: 5.0e+9}}",
    "/**: {ros__parameters: {task_options: 3}}", "/**: {ros__parameters: {1: 2}}", "/**: {ros__parameters: {null: 2}}",
    "/**: {ros__parameters: {seed: true}}", "/**: {ros__parameters: {task_options: {'': 1}}}",
]  # fmt: skip


@dataclass(frozen=True)
class BadInput:
    """A command line; FILE in it stands for a file with this content, HERE for an empty folder."""

    words: list[str]
    content: bytes = b""
    suffix: str = ".txt"
    fine: bool = False  # it may also be right
    tags: tuple[str, ...] = field(default=())


def npy(shape: str = "(3,)", kind: str = "<f8", body: bytes = b"\0" * 24) -> bytes:
    """An .npy file whose header says whatever it should."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def npz(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def agent(**changes: Any) -> bytes:
    """An agent's file for pendulum with some arrays replaced."""
    from importlib.resources import files

    with np.load(io.BytesIO((files("crbo_ros") / "data" / "pendulum.npz").read_bytes())) as archive:
        arrays = {name: archive[name] for name in archive.files}
    meta = json.loads(str(arrays["meta"])) | changes.pop("meta", {})
    arrays |= {"meta": np.array(json.dumps(meta))} | {k: v for k, v in changes.items() if v is not None}
    buffer = io.BytesIO()
    np.savez(buffer, **{k: v for k, v in arrays.items() if not (k in changes and changes[k] is None)})
    return buffer.getvalue()


def example(file: str, place: list[str | int], value: Any) -> bytes:
    """A file of examples/ with one value replaced."""
    import yaml

    content = yaml.safe_load((ROOT / "examples" / file).read_text())
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return bytes(yaml.safe_dump(content), "utf-8")


def by_hand() -> Iterator[BadInput]:
    """What somebody has tried, or will."""
    run = ["run", "furuta"]
    for name in NAMES:
        yield BadInput([*run, "--experiment", name], fine=name == "")
        yield BadInput([*run, "--namespace", name], fine=name in ("", " ", "true", "null", "nan", "a/b"))
        yield BadInput(["run", name])
        yield BadInput(["rollout", name])
        yield BadInput(["inspect", name])
        yield BadInput(["bench", name])
        yield BadInput(["train", name])
        yield BadInput([*run, "--log-level", name], fine=name == "")
        yield BadInput([*run, "--method", name], fine=name == "")
        yield BadInput([*run, "--plant", name], fine=name == "")
        yield BadInput(["rollout", "furuta", "--plant", name], fine=name == "")
    for number in NUMBERS:
        for option in ("episodes", "seed", "gamma", "lipschitz", "runners"):
            yield BadInput([*run, f"--{option}={number}"])
        yield BadInput(["rollout", "furuta", f"--seed={number}"])
        yield BadInput(["inspect", "HERE", f"--last={number}"])
    for text in ("inf", "nan", "x"):
        yield BadInput([*run, f"--j-min={text}"])
    for option, value in (
        ("seed", "-1"), ("seed", str(2**80)), ("gamma", "-0.1"), ("gamma", "1.1"), ("episodes", "-2"), ("runners",
        "-1"),
        ("runners", "65"), ("runners", str(10**30)), ("episodes", str(10**30)), ("j-min-drop", "-0.5"), ("yes-move",
        "maybe"),
        ("require-operator", "1"), ("settings", "[1]"), ("settings", '{"x": [[1], {}]}'), ("settings", '{"a": NaN}'),
        ("task-options", '{"moon": 1}'), ("settings", "[" * 3000), ("task-options", '{"realtime": "x"}'),
        ("task-options", '{"plant_options": 3}'), ("settings", '{"a": ' * 60), ("params-file", "HERE/none.yaml"),
        ("seed", "9" * 400), ("episodes", "9" * 400), ("start-rollouts", "9" * 400),
        ("params-file", "HERE"), ("experiments-dir", "FILE"), ("realtime", "2"), ("env", "Moon-v9"),
        ("evaluate", "-1"), ("evaluate", "many"), ("evaluate", "9" * 30), ("experiments-dir", "/proc/nowhere"),
        ("experiments-dir", "~nobody-of-that-name/x"), ("params-file", "~nobody-of-that-name"), ("attach", "~no-one"),
    ):  # fmt: skip
        yield BadInput([*run, f"--{option}={value}"], b"x")
    for text in YAMLS:
        yield BadInput([*run, "--params-file", "FILE"], text.encode(errors="surrogateescape"), ".yaml")
        yield BadInput(["run", "tuning", "--config", "FILE"], text.encode(errors="surrogateescape"), ".yaml")
        yield BadInput(["run", "arm", "--config", "FILE"], text.encode(errors="surrogateescape"), ".yaml")
    changes: list[tuple[str, str, list[str | int], Any]] = [
        ("arm", "arm", ["policy", "duration"], 1e6), ("arm", "arm", ["policy", "bases"], 10**9),
        ("arm", "arm", ["stretch"], 1e308), ("arm", "arm", ["controller", "rate"], 1e12), ("arm", "arm", ["joints", 0],
        " "), ("arm", "arm", ["return_seconds"], 1e15), ("joint", "tuning", ["parameters", 0, "name"], "\x1b[2J"),
        ("joint", "tuning", ["return", "signals", "torque", "topic"], "a b"),
        ("joint", "tuning", ["return", "signals", "torque", "type"], "2024-01-01"),
        ("pid", "tuning", ["episode", "timeout"], 1e15), ("pid", "tuning", ["return", "settle"], 1e15),
    ]  # fmt: skip
    for file, task, place, wrong in changes:
        yield BadInput(["run", task, "--config", "FILE"], example(f"{file}.yaml", place, wrong), ".yaml")
    thetas = [b"", b"[", b"{}", b'{"theta": 3}', b'{"theta": ["x"]}', b"[NaN]", b"[1e999]", b"[[1]]", b"null",
    b"\xff",
              b"[" * 3000, b'{"theta": [], "digest": 1}', b"[1, 2, 3]", b"true", b'"x"', b"[true]"]  # fmt: skip
    for content in thetas:
        yield BadInput(["rollout", "furuta", "--theta", "FILE"], content, ".json")
    arrays = [b"", b"x", npy()[:30], npy("(100000000000,)"), npy("(3,)", "<c16", b"\0" * 48), npy("(-1,)"), npy("(3"),
              npy("(3,)", "|O", b"\x80\x04N."), npy("(3,)", "<f8", b""), npz(a=npy()), npz()[:10],
              b"PK\x03\x04" + b"\0" * 40,
              npz(w1=npy("(100000000000,)")), npy("()", "<f8", b"\0" * 8), npy("(3,)", "<M8[s]")]  # fmt: skip
    for content in arrays:
        yield BadInput(["rollout", "furuta", "--theta", "FILE"], content, ".npy")
        yield BadInput(["rollout", "furuta", "--option", "weights=FILE"], content, ".npz")
        yield BadInput(["rollout", "pendulum", "--option", "weights=FILE"], content, ".npz")
        yield BadInput(["rollout", "basketball", "--option", "demonstration=FILE"], content, ".npz")
        yield BadInput(["run", "gym", "--env", "Pendulum-v1", "--weights", "FILE"], content, ".npz")
    for change in (
        {"input_scale": np.zeros(3)}, {"input_scale": np.full(3, np.nan)}, {"input_offset": np.full(3, np.inf)},
        {"w1": None}, {"b1": np.zeros(2)}, {"w1": np.zeros((3, 4), complex)}, {"meta": {"low": [5.0],
        "high": [-5.0]}},
        {"meta": {"output": "moon"}}, {"meta": {"input_clip": -1.0}}, {"meta": {"input_clip": "x"}},
        {"meta": {"low": [float("nan")]}}, {"meta": {"activation": "sin"}}, {"w1": np.array("x")},
    ):  # fmt: skip
        yield BadInput(["rollout", "pendulum", "--option", "weights=FILE"], agent(**change), ".npz")
    for option in ("x", "=", "=1", "gamma=-1", "gamma=NaN", "gamma=2", "width=-1", "moon=1", 'weights=""',
    "weights=[1]",
                   "weights=3", "weights=true", "gamma=[[", "weights=/dev/zero", "weights=HERE"):  # fmt: skip
        yield BadInput(["rollout", "pendulum", "--option", option])
    yield BadInput(["rollout", "pendulum", "--option", "gamma=0.5", "--option", "gamma=0.4"])
    for path in ("HERE/none/x.png", "HERE", "/proc/x.png", "/dev/full/x.png"):
        yield BadInput(["rollout", "furuta", "--plot", path])
        yield BadInput(["demo", "record", "--csv", "FILE", "--output", path], b"time,a\n0,0\n", ".csv")
    for content in (
        b"",
        b"x",
        b"\xff\xfe",
        b"time\n",
        b"time,a,b\n1,2\n",
        b"time," + b"a," * 6 + b"g\n" + b"0,nan\n" * 20,
    ):
        yield BadInput(["demo", "record", "--csv", "FILE"], content, ".csv")
        yield BadInput(["demo", "record", "--bag", "FILE"], content, ".mcap")
        yield BadInput(["demo", "record", "--bag", "FILE"], content, ".db3")
        yield BadInput(["import-sb3", "FILE", "--output", "HERE/x.npz"], content, ".zip")
    for content in (b"", b"x" * 100, b"SQLite format 3\0" + b"\0" * 84, b"SQLite format 3\0" + b"\xff" * 4096):
        for command in (
            ["inspect"],
            ["report"],
            ["export", "--csv"],
            ["repair"],
            ["inspect", "--verify"],
            ["inspect", "--json"],
        ):
            yield BadInput([*command, "FILE"], content, ".sqlite")
    for words in (
        ["--seed=-4"], ["--rollouts=1"], ["--rollouts=1000000000"], ["--seed=" + "9" * 30],
    ):  # fmt: skip
        yield BadInput(["advise", "furuta", *words])
    yield BadInput(["accept", "HERE", "--by", "a\nb"])
    yield BadInput(["bench", "campaign", "--parts", "moon", "--no-docs"])
    yield from (BadInput(words) for words in (["moon"], ["run"], ["bench"], ["train"], ["train", "ppo"],
                                          ["bench", ".."],
                                          ["inspect"], ["export", "HERE"], ["gui", "--size", "x"], ["export", "x",
                                          "--csv"],
                                          ["rollout"], ["demo", "moon"], ["report", "HERE"], ["repair",
                                          "HERE"], ["doctor", "--plant", ""]))  # fmt: skip


def generated(count: int, seed: int) -> Iterator[BadInput]:
    """The cases by hand with a few words or bytes changed at random; whether the result is wrong nobody knows."""
    rng = np.random.default_rng(seed)
    pool = list(by_hand())
    while count > 0:
        case = pool[int(rng.integers(len(pool)))]
        words, content = list(case.words), bytearray(case.content)
        for _ in range(int(rng.integers(1, 4))):
            kind = int(rng.integers(5))
            if kind == 0 and len(words) > 1:
                words[-1] = words[-1][: int(rng.integers(len(words[-1]) + 1))]
            elif kind == 1:
                words.append(str(rng.choice([*NAMES[:12], *NUMBERS])))
            elif kind == 2 and content:
                content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
            elif kind == 3 and content:
                del content[int(rng.integers(len(content))) :]
            elif len(words) > 2:
                other = pool[int(rng.integers(len(pool)))].words
                words[int(rng.integers(2, len(words)))] = other[-1] if other else "x"
        if words[:1] not in (["gui"], ["shell"], ["test"], ["doctor"], ["reference"]) and "bench" not in words[:1]:
            count -= 1
            yield BadInput(words, bytes(content), case.suffix, fine=True)


class Reached(Exception):
    """The graph would have been started: everything was accepted."""


def judge(case: BadInput, folder: Path) -> tuple[str, str]:
    """(what became of a case, what was said)."""
    from unittest import mock

    from crbo_ros import cli

    file = folder / f"input{case.suffix}"
    file.write_bytes(case.content)
    here = folder / "here"
    here.mkdir(exist_ok=True)
    words = [word.replace("FILE", str(file)).replace("HERE", str(here)) for word in case.words]
    said, begun, reached = io.StringIO(), time.monotonic(), []

    def stop(*_: Any, **__: Any) -> int:
        reached.append(1)
        return 3

    with (
        contextlib.chdir(folder) if hasattr(contextlib, "chdir") else contextlib.nullcontext(),
        contextlib.redirect_stderr(said), contextlib.redirect_stdout(said),
        mock.patch("crbo_ros.commands.run.run_graph", stop), mock.patch.dict(os.environ),
        mock.patch("crbo_ros.policies.demonstration.record_topic", stop),
    ):  # fmt: skip
        try:
            code = cli.main(words)
        except SystemExit as error:  # argparse
            code = error.code if isinstance(error.code, int) else 2
        except BaseException as error:
            return TRACEBACK, f"{type(error).__name__}: {error}"
    text = said.getvalue()
    if time.monotonic() - begun > LIMIT:
        return HANG, f"{time.monotonic() - begun:.0f} s"
    if "Traceback" in text or "unexpected " in text.partition("crbo: ")[2][:12]:
        return TRACEBACK, text
    if reached or code == 0:
        return ACCEPTED, text
    return (REFUSED, text) if text.strip() else (TRACEBACK, "nothing was said")


def campaign(
    count: int, seed: int, say: Callable[[str], None] = lambda line: None
) -> Iterator[tuple[BadInput, str, str]]:
    """All cases by hand (a random part of them if that is more than half of `count`), the rest generated."""
    hand = list(by_hand())
    if len(hand) > count // 2:
        chosen = np.random.default_rng(seed).permutation(len(hand))[: max(count // 2, 1)]
        hand = [hand[i] for i in chosen]
    with tempfile.TemporaryDirectory() as scratch:
        for number, case in enumerate([*hand, *generated(count - len(hand), seed)]):
            fate, said = judge(case, Path(scratch))
            say(f"{number}: {case.words} {case.content[:40]!r}: {fate}: {said.strip()[-200:]}")
            yield case, fate, said


def is_wrong(case: BadInput, fate: str) -> bool:
    return fate in (TRACEBACK, HANG) or (fate == ACCEPTED and not case.fine)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")


def run(args: argparse.Namespace) -> int:
    fates: Counter[str] = Counter()
    wrong = 0
    for case, fate, said in campaign(args.count, args.seed, print if args.verbose else lambda line: None):
        fates[fate] += 1
        if is_wrong(case, fate):
            wrong += 1
            print(f"{fate}: {case.words} {case.content[:60]!r}\n    {said.strip()[-400:]}")
    print(", ".join(f"{n} {fate}" for fate, n in fates.items()) + f"; {wrong} wrong")
    return 1 if wrong else 0
