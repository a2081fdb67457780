"""Same seed, same settings, same returns: the same proposals, bit for bit, as a version that went before.

recorded_runs.json holds 30 proposals of each task with the returns that they got, one of them vetoed and one failed. A
change of the method that is meant to change proposals records them anew (and says so in its commit):

    ./crbo shell python test/core/test_recorded_runs.py

Bits depend on the processor: linear algebra and exp choose their instructions by it, and one last bit grows to some
per mille of the box within a single proposal. So runs are recorded and repeated in a process that is held to what every
x86_64 of the last ten years has. Where even that, or NumPy or SciPy, differs (`arithmetic`), nothing can be compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from numpy._core._multiarray_umath import __cpu_dispatch__  # type: ignore[import-not-found,unused-ignore]

from crbo_ros.registry import make_method, make_task

FILE = Path(__file__).with_name("recorded_runs.json")
SEED, EPISODES, VETOED, FAILED = 7, 30, 12, 17
TASKS = ("furuta", "basketball", "pendulum", "cartpole", "mountaincar")
NEWER = [name for name in __cpu_dispatch__ if name.startswith("AVX512") or name == "X86_V4"]
PLAIN = {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": " ".join(NEWER), "OPENBLAS_NUM_THREADS": "1"}


def fingerprint(*arrays: Any) -> str:
    parts = [np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]


def arithmetic() -> str:
    """The versions, and a fingerprint of what this process makes of some linear algebra."""
    A = np.random.default_rng(0).standard_normal((90, 90))
    L = np.linalg.cholesky(A @ A.T + np.eye(90))
    solved = scipy.linalg.solve_triangular(L, A, lower=True)
    if sum([0.1] * 10) == 1.0:  # Python 3.12 and later sum floats with compensation
        return "another sum of floats"
    return f"NumPy {np.__version__}, SciPy {scipy.__version__}, {fingerprint(L, solved, np.exp(-(A**2)), A @ A[0])}"


def tell(method: Any, id: int, row: dict[str, Any]) -> None:
    if row["end"] == "vetoed":
        method.veto(id, "recorded veto")
    elif row["end"] == "failed":
        method.fail(id, "recorded failure")
    else:
        method.tell(id, float.fromhex(row["value"]))


def repeat(name: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    """[fingerprint, kind] of each proposal when the method is told what was recorded."""
    task = make_task(name)
    method = make_method("crbo", task.space, task.theta_0, seed=SEED, gamma=task.gamma)
    found = []
    for row in rows:
        proposal = method.ask()
        found.append([fingerprint(proposal.theta), proposal.kind])
        tell(method, proposal.id, row)
    return found


def record(name: str) -> list[dict[str, Any]]:
    with make_task(name) as task:
        method = make_method("crbo", task.space, task.theta_0, seed=SEED, gamma=task.gamma)
        return [record_one(task, method, n) for n in range(EPISODES)]


def record_one(task: Any, method: Any, n: int) -> dict[str, Any]:
    proposal = method.ask()
    outcome = task.rollout(proposal.theta, np.random.default_rng([SEED, 1, n]))
    end = "vetoed" if n == VETOED else "failed" if n == FAILED or not outcome.counts else outcome.end
    row = {"theta": fingerprint(proposal.theta), "kind": proposal.kind, "value": float(outcome.value).hex(), "end": end}
    tell(method, proposal.id, row)
    return row


def in_a_plain_process(*arguments: str) -> Any:
    """What `main` prints in a process without the newer instructions."""
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, env=os.environ | PLAIN, check=True, capture_output=True).stdout)


@pytest.mark.parametrize("name", TASKS)
def test_the_same_proposals_as_in_the_recorded_run(name: str) -> None:
    if name == "basketball":
        pytest.importorskip("pybullet")
    recorded = json.loads(FILE.read_text())
    found = in_a_plain_process("repeat", name)
    if found["arithmetic"] != recorded["arithmetic"]:
        pytest.skip(f"recorded with {recorded['arithmetic']}; here: {found['arithmetic']}")
    assert found["proposals"] == [[row["theta"], row["kind"]] for row in recorded[name]]


def main(verb: str = "", name: str = "") -> None:
    if verb == "repeat":
        rows = json.loads(FILE.read_text())[name]
        print(json.dumps({"arithmetic": arithmetic(), "proposals": repeat(name, rows)}))
    elif verb == "record":
        print(json.dumps({"arithmetic": arithmetic(), "rows": record(name)}))
    else:
        found = {name: in_a_plain_process("record", name) for name in TASKS}
        rows = {name: one["rows"] for name, one in found.items()}
        FILE.write_text(json.dumps({"arithmetic": found[TASKS[0]]["arithmetic"], **rows}, indent=0) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
