"""The acceptance test on simulated policies: how often it is wrong, and how many rollouts it takes.

Equal policies under four kinds of noise, and a gain of some standard deviations, each many times. Beside it the
rollouts that a fixed t test of two samples needs for the same power at the same level.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from crbo_ros.core.sequential_test import Earlier, SequentialTest

NOISES: dict[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: float(rng.normal()),
    "lognormal": lambda rng: float(rng.lognormal()) / 2.16,
    "10 % falls": lambda rng: float(-5.0 * (rng.random() < 0.1) + 0.3 * rng.normal()),
    "Cauchy": lambda rng: float(rng.standard_cauchy()),
}


FALLS = "new falls"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rollouts", type=int, default=200, help="at most so many in one run")
    parser.add_argument("--level", type=float, default=0.05)
    parser.add_argument("--gain", type=float, default=2.0, help="in standard deviations")
    parser.add_argument("--margin", type=float, default=1.0, help="in standard deviations")
    parser.add_argument("--weight", type=float, default=2.0, help="earlier returns of each policy; 0: none")


def run(args: argparse.Namespace) -> int:
    print(
        f"{args.runs} runs each, level {args.level:g}, margin {args.margin:g} sd, {args.weight:g} earlier returns each"
    )
    good = True
    for noise in NOISES:
        verdicts = [decide(args, seed, 0.0, noise)[0] for seed in range(args.runs)]
        share = {word: verdicts.count(word) / args.runs for word in ("better", "worse", "not better", "")}
        good = good and share["better"] <= args.level
        print(f"equal, {noise:10}  better {share['better']:.3f}  worse {share['worse']:.3f}  "
              f"not better {share['not better']:.3f}  undecided {share['']:.3f}")  # fmt: skip
    rare = sum(decide(args, seed, 0.5, FALLS)[0] == "better" for seed in range(args.runs)) / args.runs
    print(f"same mean, but the new one usually 0.5 higher and 5 lower in 10 % of its rollouts: better {rare:.3f}")
    found = [decide(args, 10**6 + seed, args.gain, "normal") for seed in range(args.runs)]
    power = sum(verdict == "better" for verdict, _ in found) / args.runs
    rollouts = np.array([n for _, n in found])
    fixed = fixed_rollouts(min(power, 1.0 - 1.0 / args.runs), args.gain, args.level)
    usual = f"{rollouts.mean():.1f} on average, median {np.median(rollouts):.0f}, 90 % {np.quantile(rollouts, 0.9):.0f}"
    print(f"gain {args.gain:g} sd: better {power:.4f}; rollouts {usual}; a fixed t test of that power: {fixed}")
    return 0 if good and rollouts.mean() <= fixed / 2 else 1


def decide(args: argparse.Namespace, seed: int, gain: float, noise: str) -> tuple[str, int]:
    """(verdict, rollouts) of one acceptance."""
    rng, draw = np.random.default_rng([seed, 0xACC]), NOISES["normal" if noise == FALLS else noise]
    scale = 0.3 if noise == FALLS else 1.0
    earlier = None
    if args.weight > 0:
        means = [float(np.mean([scale * draw(rng) for _ in range(round(args.weight))])) for _ in range(2)]
        earlier = Earlier(means[0], means[1] + gain, 1.0, args.weight)
    test = SequentialTest(args.level, args.margin, earlier)
    for n in range(1, args.rollouts + 1):
        new = bool(rng.random() < 0.5)
        falls = noise == FALLS and new and rng.random() < 0.1
        test.add(new, scale * draw(rng) + gain * new - 5.0 * falls)
        if test.verdict:
            return test.verdict, n
    return "", args.rollouts


def fixed_rollouts(power: float, gain: float, level: float) -> int:
    """Of a one-sided t test of two samples of the same size, both together."""
    from scipy.stats import nct, t

    for n in range(2, 10_000):
        reach = 1.0 - nct.cdf(t.ppf(1.0 - level, 2 * n - 2), 2 * n - 2, gain * np.sqrt(n / 2.0))
        if reach >= power:
            return 2 * n
    return 20_000
