"""Build the site from docs/*.md (Sphinx, MyST), without a network; every warning is an error."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", default="", help="folder of the site (.crbo/site)")


def run(args: argparse.Namespace) -> int:
    root = Path(os.environ.get("CRBO_ROOT") or Path(__file__).parents[2])
    if not (root / "docs" / "conf.py").exists():
        print(f"crbo: the site is built in a clone ({root} has no docs/conf.py)", file=sys.stderr)
        return 1
    site = Path(args.output or root / ".crbo" / "site").resolve()
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    code = subprocess.run([*sphinx, str(root / "docs"), str(site)], cwd=root, check=False).returncode
    if not code:
        print(f"site  {site / 'index.html'}")
    return code
