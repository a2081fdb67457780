"""Whether the pictures of window and report are those that today's code draws: hashes of both beside them.

    python docs/images/stamp.py            # exit code 1 if not: make them again with docs/images/make.sh
    python docs/images/stamp.py --write    # the last line of make.sh

Comments and blank lines of the code do not count.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
STAMP = HERE / "stamp.json"
PICTURES = ("monitor.png", "furuta_run.png", "furuta_returns.svg")
DRAWN_BY = (
    "docs/images/make.sh", "crbo_ros/numbers.py", "crbo_ros/report/figures.py", "crbo_ros/rqt/accepting.py",
    "crbo_ros/rqt/plots.py", "crbo_ros/rqt/qt.py", "crbo_ros/rqt/table.py", "crbo_ros/rqt/widget.py",
    "crbo_ros/view/colors.py", "crbo_ros/view/headline.py", "crbo_ros/view/scale.py",
)  # fmt: skip


def current() -> dict[str, str]:
    """The hash of each picture, and of each file that draws them."""
    found = {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in PICTURES}
    for name in DRAWN_BY:
        lines = (line.rstrip() for line in (HERE.parents[1] / name).read_text().splitlines())
        code = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
        found[name] = hashlib.sha256(code.encode()).hexdigest()
    return found


def stale() -> list[str]:
    """What has changed since the pictures were made."""
    known = json.loads(STAMP.read_text()) if STAMP.is_file() else {}
    return [name for name, digest in current().items() if known.get(name) != digest]


if __name__ == "__main__":
    if "--write" in sys.argv:
        STAMP.write_text(json.dumps(current(), indent=1) + "\n")
    elif changed := stale():
        sys.exit(f"{', '.join(changed)}: changed since the pictures were made; docs/images/make.sh makes them again")
