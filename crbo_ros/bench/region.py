"""The growing confidence region in two dimensions (the paper's Figure 1): n = 3, 10, 20 and 50."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench import figures
from crbo_ros.bench.problems import synthetic_function

STAGES = (3, 10, 20, 50)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=5000, help="number of the function, and the optimizer's seed")
    parser.add_argument("--gamma", type=float, default=0.6, help="confidence parameter")
    parser.add_argument("--out", type=Path, default=Path("results") / "region", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="up to n = 20 only")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.core.crbo import CRBO
    from crbo_ros.core.region import ConfidenceRegion

    function = synthetic_function(2, args.seed)
    optimizer = CRBO(function.space, function.theta_0, seed=args.seed, gamma=args.gamma)
    rng = np.random.default_rng(args.seed)
    stages = STAGES[:3] if args.quick else STAGES
    made, axes = figures.figure(len(stages), width=3.0)
    rows = ["n,regret,share_of_box"]
    for n in range(1, stages[-1] + 1):
        proposal = optimizer.ask()
        optimizer.tell(proposal.id, function.observe(proposal.theta, rng))
        if n in stages:
            X, _ = optimizer.data()
            twin = CRBO(function.space, function.theta_0, seed=args.seed, gamma=args.gamma)
            twin.restore(optimizer.state())
            twin.ask()  # fits its model to all n returns
            region = ConfidenceRegion(twin.surrogate, args.gamma)
            share = draw(axes[0][stages.index(n)], function, region, X, n)
            regret = min(function.regret(t) for t in function.space.from_unit(X))
            rows.append(f"{n},{regret:.6g},{share:.4f}")
    figures.save(made, args.out / "region")
    (args.out / "region.csv").write_text("\n".join(rows) + "\n")
    print("\n".join(rows))
    return 0


def draw(axis: Any, function: Any, region: Any, X: np.ndarray, n: int) -> float:
    """One stage; returns the region's share of the box."""
    line = np.linspace(-1.0, 1.0, 121)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    values = function(grid).reshape(121, 121)
    inside = region.contains(function.space.to_unit(grid)).reshape(121, 121)
    axis.contourf(line, line, values, levels=20, cmap="Greys", alpha=0.6)
    axis.contourf(line, line, np.where(inside, values, math.nan), levels=20, cmap="viridis")
    axis.contour(line, line, inside.astype(float), levels=[0.5], colors="#1f77b4", linewidths=1.2)
    thetas = function.space.from_unit(X)
    axis.plot(thetas[1:, 0], thetas[1:, 1], "kx", markersize=4)
    axis.plot(*thetas[0], "rx", markersize=6)
    axis.plot(*function.optimum, "w*", markersize=7, markeredgecolor="black", markeredgewidth=0.4)
    axis.set_title(f"n = {n}")
    axis.set_xticks([])
    axis.set_yticks([])
    return float(inside.mean())
