"""`./crbo advise TASK|EXPERIMENT`: which threshold and risk theta_0 itself could keep, with the figures behind it.

./crbo advise pendulum                     # runs theta_0 20 times (simulations only)
./crbo advise furuta --rollouts 50
./crbo advise furuta-lab                   # from theta_0's rollouts in an experiment's records; nothing moves

A threshold within theta_0's own noise cannot be kept by anybody: where theta_0 itself falls in a larger share of its
rollouts on record (attached ones included) than the risk, the contract is refused. Advised is the smallest drop below
J0 that no rollout of theta_0 reached and that lies two standard deviations below J0.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from crbo_ros import checks
from crbo_ros.core.contract import RISK
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.numbers import number
from crbo_ros.registry import make_task, task_problem

DROPS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="TASK|EXPERIMENT")
    parser.add_argument("--plant", help="the task's first plant by default")
    parser.add_argument("--rollouts", type=int, default=20, help="of theta_0 (default: 20)")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> int:
    checks.number(args.seed, "--seed", 0, 2**31 - 1, whole=True)
    checks.number(args.rollouts, "--rollouts", 2, 10_000, whole=True)
    values, source = theta_0_returns(args)
    print("\n".join(advice(values, source)))
    return 0


def theta_0_returns(args: argparse.Namespace) -> tuple[NDArray[np.float64], str]:
    """theta_0's returns, and where they come from."""
    from crbo_ros.view.record import find_store, read_run

    try:
        run = read_run(find_store(args.what))
    except StoreError:
        run = None
    if run is not None and run.experiment is not None:
        start = run.experiment["theta_0"]
        rows = [row for row in run.counted if row.proposal and np.array_equal(row.proposal.theta, start)]
        return np.array([row.value for row in rows]), f"the records of {run.name}"
    problem = task_problem(args.what, args.plant)
    if problem.hardware:
        raise InvalidInput(
            f"{args.what}: is hardware, which moves only under a safety monitor; run an experiment with "
            f"start_rollouts: {args.rollouts} and episodes: {args.rollouts}, then ask for advice on its folder"
        )
    with make_task(args.what, args.plant) as task:
        outcomes = [task.rollout(task.theta_0, np.random.default_rng([args.seed, k])) for k in range(args.rollouts)]
    return np.array([o.value for o in outcomes if o.counts]), f"{args.rollouts} rollouts on {problem.plant}"


def advice(values: NDArray[np.float64], source: str, risk: float = RISK) -> list[str]:
    """The advice, line by line."""
    if len(values) < 2:
        raise InvalidInput(f"{len(values)} returns of theta_0 in {source}: at least 2 are needed, 20 are better")
    J0, spread, n = float(np.mean(values)), float(np.std(values, ddof=1)), len(values)
    lines = [
        f"theta_0     J0 = {number(J0)}, standard deviation {number(spread)}, lowest {number(float(values.min()))} "
        f"({n} returns: {source})",
        f"            {'j_min_drop':>10} {'J_min':>10}  theta_0 falls below it",
    ]
    chosen = math.inf
    for drop in DROPS:
        threshold = J0 - drop * abs(J0)
        fallen = int(np.sum(values < threshold))
        most = float(beta.ppf(0.95, fallen + 1, n - fallen)) if fallen < n else 1.0  # Clopper and Pearson
        said = f"{fallen} of {n} (its rate is below {100 * most:.0f} %, with 95 % confidence)"
        if fallen > risk * n:
            said += f", which is more than the risk of {100 * risk:g} %: refused"
        lines.append(f"            {drop:>10g} {number(threshold):>10}  {said}")
        if not fallen and drop * abs(J0) >= 2.0 * spread and math.isinf(chosen):
            chosen = drop
    if math.isinf(chosen):
        j_min = float(values.min()) - 3.0 * spread
        lines.append(f"advice      j_min: {number(j_min)} (no drop relative to J0 fits), risk: {risk:g}")
    else:
        lines.append(f"advice      j_min_drop: {chosen:g} (J_min {number(J0 - chosen * abs(J0))}), risk: {risk:g}")
    lines.append(
        f"            of 100 rollouts at most {math.ceil(100 * risk)} new policies fall below that; where one is too "
        "many: risk: 0 with a lipschitz of your own"
    )
    if n < 20:
        lines.append(f"            {n} returns say little about rare falls; 20 are better")
    return lines
