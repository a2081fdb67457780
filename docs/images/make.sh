#!/usr/bin/env bash
# The README's pictures of the window (during a run) and of the report (after it): docs/images/make.sh [SECONDS [EPISODES]]
# SECONDS after which the window is photographed; a run of 100 episodes takes from some seconds to a minute.
set -e
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CRBO_HOME=$folder
./crbo run furuta --seed 1 --episodes "${2:-100}" --experiment furuta --evaluate 0 --no-report &
run=$!
./crbo gui --namespace furuta --seconds "${1:-10}" --screenshot docs/images/monitor.png
wait "$run"
./crbo report furuta --folder "$folder/report"
cp "$folder/report/report.png" docs/images/furuta_run.png
./crbo shell python - "$folder" <<'PYTHON' # its first panel, for the site's first page
import base64, sys
from pathlib import Path
from crbo_ros.report.figures import drawings
from crbo_ros.view.record import find_store, read_run

_, small = drawings(read_run(find_store("furuta", sys.argv[1])))["returns"]
Path("docs/images/furuta_returns.svg").write_bytes(base64.b64decode(small.source))
PYTHON
./crbo shell python docs/images/stamp.py --write # test/test_documentation.py says when they are not current any more
