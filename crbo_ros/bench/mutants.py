"""Do the tests bite? Small wrong changes in what keeps the promises, one at a time: how many does the quick suite kill?

    ./crbo bench mutants --count 300 --seed 1
    ./crbo bench mutants --module protocol/gate --all

A mutant is one change in one place of a module (a comparison turned, `and` for `or`, a `not` left out, a condition
always true or false, a statement left out, a number one off); messages, types and log lines are left alone. The
module's own quick tests run against it in a fresh process, the mutated source in the place of the file, which is never
touched. Killed: a test fails or hangs. Survivors are listed; those that somebody has looked at and found harmless stand
in test/mutants.json with the reason, and are counted apart.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
JUDGED = ROOT / "test" / "mutants.json"
LIMIT = 240.0  # s for a module's tests
GATE, STORE, INTEGRITY = (
    "protocol/test_gate_and_spool.py",
    "protocol/test_store_and_optimizer.py",
    "protocol/test_integrity.py",
)
MODULES = {  # and the tests that must notice, quickest first
    "protocol/gate": [GATE, "protocol/test_loop.py"],
    "protocol/spool": [GATE, INTEGRITY, "protocol/test_loop.py"],
    "protocol/monitor": ["protocol/test_monitor.py"],
    "protocol/monitor_store": ["protocol/test_monitor.py", INTEGRITY],
    "protocol/optimizer": [STORE],
    "protocol/store": [STORE, INTEGRITY],
    "protocol/replay": [STORE],
    "protocol/leases": [STORE],
    "protocol/chain": [INTEGRITY],
    "protocol/database": [STORE, INTEGRITY],
    "protocol/proofs": ["protocol/test_proofs.py"],
    "protocol/best_file": [INTEGRITY],
    "protocol/runner": ["protocol/test_loop.py", "protocol/test_recorded_schedules.py"],
    "protocol/records": [GATE, "protocol/test_monitor.py", STORE],
    "core/bound": ["core/test_bound.py", "protocol/test_monitor.py"],
    "ros/convert": ["ros/test_convert.py"],
}
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}
TALK = {"say", "warning", "info", "error", "fatal", "debug", "print", "log"}


@dataclass(frozen=True)
class Mutant:
    """One wrong change."""

    module: str  # protocol/gate
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.module} {self.function}: {self.before} -> {self.after}"


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """The wrong forms of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
        turned = copy.deepcopy(node)
        turned.ops = [TURNED[type(node.ops[0])]()]
        yield turned
    elif isinstance(node, ast.Compare) and len(node.ops) == 2:
        for i in range(2):
            open_end = copy.deepcopy(node)
            operands = [node.left, *node.comparators]
            open_end.left, open_end.ops = copy.deepcopy(operands[i]), [copy.deepcopy(node.ops[i])]
            open_end.comparators = [copy.deepcopy(operands[i + 1])]
            yield open_end
    elif isinstance(node, ast.BoolOp):
        other = copy.deepcopy(node)
        other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield other
        for i in range(len(node.values)):
            fewer = copy.deepcopy(node)
            del fewer.values[i]
            yield fewer if len(fewer.values) > 1 else fewer.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
        sign = copy.deepcopy(node)
        sign.op = ARITHMETIC[type(node.op)]()
        yield sign
    elif isinstance(node, ast.If):
        for value in (True, False):
            always = copy.copy(node)
            always.test = ast.Constant(value)
            yield always
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, (ast.Raise, ast.AugAssign)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_talk(node.value)
    ) or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)):  # fmt: skip
        yield ast.Pass()


def _is_talk(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in TALK or name == "close"


def places(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST]]:
    """(function, parent, field, index, node) of all that may be changed: code in functions, not what it says."""

    def walk(parent: ast.AST, function: str) -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST]]:
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "defaults", "kw_defaults", "keywords_of_talk"):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(node, ast.AST) or isinstance(node, (ast.JoinedStr, ast.arguments)):
                    continue
                if isinstance(node, ast.Call) and _is_talk(node):
                    continue
                inside = function
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    inside = f"{function}.{node.name}".strip(".")
                if isinstance(parent, ast.Raise):
                    continue  # (the text of an error)
                if function and not isinstance(parent, ast.ClassDef):
                    yield inside, parent, name, index, node
                yield from walk(node, inside)

    yield from walk(tree, "")


def mutants(module: str) -> list[Mutant]:
    """All mutants of a module."""
    text = (ROOT / "crbo_ros" / f"{module}.py").read_text()
    tree = ast.parse(text)
    found = []
    for function, parent, name, index, node in places(tree):
        for variant in variants(node):
            after = ast.fix_missing_locations(ast.copy_location(variant, node))
            _put(parent, name, index, after)
            try:
                source = ast.unparse(tree)
            finally:
                _put(parent, name, index, node)
            before, now = (ast.unparse(n).partition("\n")[0][:100] for n in (node, after))
            found.append(Mutant(module, function, getattr(node, "lineno", 0), before, now, source))
    return found


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


class Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the mutated source for its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.mutant = f"crbo_ros.{mutant.module.replace('/', '.')}", mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        file = str(ROOT / "crbo_ros" / f"{self.mutant.module}.py")
        return importlib.machinery.ModuleSpec(name, self, origin=file) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = module.__spec__.origin if module.__spec__ else None
        exec(compile(self.mutant.source, module.__file__ or "", "exec"), module.__dict__)


def try_mutant(mutant: Mutant, tests: list[str], exit_code: Any) -> None:
    """In a process of its own: 0 if no test noticed."""
    import pytest

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for name in [name for name in sys.modules if name == "crbo_ros" or name.startswith("crbo_ros.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Loader(mutant))
    os.chdir(ROOT)
    paths = [str(ROOT / "test" / test) for test in tests if (ROOT / "test" / test).exists()]
    exit_code.value = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *paths]))


def survives(mutant: Mutant) -> bool:
    """Whether its tests pass."""
    context = multiprocessing.get_context("fork")
    exit_code = context.Value("i", 99)
    child = context.Process(target=try_mutant, args=(mutant, MODULES[mutant.module], exit_code))
    child.start()
    child.join(LIMIT)
    if child.is_alive():
        child.kill()
        child.join()
        return False
    return exit_code.value == 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=300, help="mutants to try, spread over all modules")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", choices=list(MODULES), help="only this one")
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--list", action="store_true", help="only count what there is")


def sample(modules: list[str], count: int, seed: int, everything: bool) -> list[Mutant]:
    found = [mutant for module in modules for mutant in mutants(module)]
    order = np.random.default_rng(seed).permutation(len(found))
    return found if everything else [found[i] for i in order[:count]]


def run(args: argparse.Namespace) -> int:
    import pytest  # noqa: F401  # and what its tests load, once for all children
    import scipy.linalg  # noqa: F401

    judged = json.loads(JUDGED.read_text()) if JUDGED.exists() else {}
    chosen = sample([args.module] if args.module else list(MODULES), args.count, args.seed, args.all)
    if args.list:
        print(f"{len(chosen)} mutants")
        return 0
    end, killed, harmless, alive, tried = time.monotonic() + 60.0 * args.minutes, 0, 0, 0, 0
    with contextlib.suppress(KeyboardInterrupt):
        for mutant in chosen:
            if time.monotonic() > end:
                break
            tried += 1
            if not survives(mutant):
                killed += 1
            elif mutant.name in judged:
                harmless += 1
            else:
                alive += 1
                print(f"survived: {mutant.name}   (line {mutant.line})", flush=True)
    score = killed / max(tried - harmless, 1)
    print(f"{tried} mutants: {killed} killed, {harmless} judged harmless, {alive} survived: {score:.1%} killed")
    return 0 if score >= 0.9 else 1
