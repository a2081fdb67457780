"""Small wrong changes in a module, one at a time, and how a running process gets one.

A comparison turned, `and` for `or`, a `not` left out, a condition always true or false, a statement left out, a sign, a
number one off. Messages, types and log lines are left alone.
"""

from __future__ import annotations

import ast
import copy
import gc
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

ROOT = Path(__file__).parents[2]
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
    number: int  # of those with the same words in the same function
    state: str  # of the text around it: the function it lies in
    tree: ast.Module  # the whole module with the change in it

    @property
    def name(self) -> str:
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.module} {self.function}: {self.before} -> {self.after}{again}"


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

    def walk(parent: ast.AST, function: str, runs: bool) -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST]]:
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
                if isinstance(parent, ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "strict"):
                    continue  # (the text of an error; zip's own look at what we wrote)
                if runs:  # (what a module or class does while it is loaded cannot be given to a running process)
                    yield inside, parent, name, index, node
                yield from walk(node, inside, isinstance(node, ast.FunctionDef) or (runs and inside == function))

    yield from walk(tree, "", False)


def mutants(module: str) -> Iterator[Mutant]:
    """All mutants of a module. The tree is the same object each time, so each must be used before the next is made."""
    tree = ast.parse((ROOT / "crbo_ros" / f"{module}.py").read_text())
    seen: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for function, _, _, _, node in places(tree):
        texts[function] = zlib.crc32(ast.unparse(node).encode(), texts[function])
    for function, parent, name, index, node in places(tree):
        for variant in variants(node):
            after = ast.fix_missing_locations(ast.copy_location(variant, node))
            before, now = (ast.unparse(n).partition("\n")[0][:100] for n in (node, after))
            words = f"{function} {before} {now}"
            seen[words] += 1
            _put(parent, name, index, after)
            try:
                yield Mutant(
                    module, function, getattr(node, "lineno", 0), before, now, seen[words], f"{texts[function]:x}", tree
                )
            finally:
                _put(parent, name, index, node)


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def functions_of(module: str) -> list[FunctionType]:
    """The functions of a module that this process has."""
    file = str(ROOT / "crbo_ros" / f"{module}.py")
    return [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__.co_filename == file]


def mutate(mutant: Mutant, functions: list[FunctionType]) -> None:
    """Give those of the module's functions that lie where the change is the changed code. ValueError: it cannot be."""
    file = str(ROOT / "crbo_ros" / f"{mutant.module}.py")
    changed = {(code.co_name, code.co_firstlineno): code for code in _codes(compile(mutant.tree, file, "exec"))}
    for found in functions:
        code = changed.get((found.__code__.co_name, found.__code__.co_firstlineno))
        if code is not None and code != found.__code__:
            found.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
