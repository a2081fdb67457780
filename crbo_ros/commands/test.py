"""Lint, types and tests, as CI runs them. Arguments not known here go to pytest (and then only pytest runs)."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TAKES_UNKNOWN = True  # the rest of the command line belongs to pytest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slow", action="store_true", help="run the slow tests as well")


def run(args: argparse.Namespace) -> int:
    root = Path(os.environ.get("CRBO_ROOT", Path(__file__).parents[2]))
    if not (root / "test").is_dir():
        print(f"crbo: the tests are not installed; run this in a clone ({root} has no test folder)", file=sys.stderr)
        return 1
    python = [sys.executable, "-m"]
    checks = [
        ("ruff check", [*python, "ruff", "check", "."]),
        ("ruff format", [*python, "ruff", "format", "--check", "."]),
        ("mypy", [*python, "mypy"]),
    ]
    tests = ("pytest", [*python, "pytest", *(["--slow"] if args.slow else []), *args.rest])
    failed = []
    for name, command in [tests] if args.rest else [*checks, tests]:
        print(f"== {name}", flush=True)
        if subprocess.run(command, cwd=root, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"crbo: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
