"""Lint, types and tests, as CI runs them. Arguments not known here go to pytest (and then only pytest runs).

Two streams side by side: the tests of running nodes, which mostly wait, and everything else, which computes and steps
back for them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

TAKES_UNKNOWN = True  # the rest of the command line belongs to pytest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slow", action="store_true", help="run the slow tests as well")


def run(args: argparse.Namespace) -> int:
    root = Path(os.environ.get("CRBO_ROOT", Path(__file__).parents[2]))
    if not (root / "test").is_dir():
        print(f"crbo: the tests are not installed; run this in a clone ({root} has no test folder)", file=sys.stderr)
        return 1
    python = [sys.executable, "-m"]
    pytest = [*python, "pytest", *(["--slow"] if args.slow else [])]
    if args.rest:
        return 1 if _failed([("pytest", [*pytest, *args.rest])], root, sys.stdout) else 0
    computing = [
        ("ruff check", [*python, "ruff", "check", "."]),
        ("ruff format", [*python, "ruff", "format", "--check", "."]),
        ("mypy", [*python, "mypy"]),
        ("pytest: without nodes", [*pytest, "-m", "not ros", "-p", "no:cacheprovider"]),
    ]
    with tempfile.TemporaryFile("w+") as aside, ThreadPoolExecutor() as pool:
        other = pool.submit(
            _failed, [(name, ["nice", "-n", "19", *command]) for name, command in computing], root, aside
        )
        failed = _failed([("pytest: nodes", [*pytest, "-m", "ros"])], root, sys.stdout) + other.result()
        aside.seek(0)
        sys.stdout.write(aside.read())
    if failed:
        print(f"crbo: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _failed(steps: list[tuple[str, list[str]]], root: Path, output: IO[str]) -> list[str]:
    """Run all of them, whatever becomes of the others: the names of those that failed."""
    failed = []
    for name, command in steps:
        print(f"== {name}", file=output, flush=True)
        if subprocess.run(command, cwd=root, check=False, stdout=output, stderr=subprocess.STDOUT).returncode:
            failed.append(name)
    return failed
