"""The `crbo` command: one table of commands, each a module with `add_arguments(parser)` and `run(args) -> int`.

Standard library only, so that `./crbo --help` works before anything is installed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Subcommand:
    """One command of the command line: which group of the help, what it does, where, and what it needs installed."""

    group: str
    help: str
    module: str  # "{}" stands for the next argument (bench NAME, train NAME)
    needs: tuple[str, ...] = ("core", "sim")  # purposes: files in requirements/
    ros: bool = False  # needs ROS and the built interfaces
    slow_needs: tuple[str, ...] = ()  # and with --slow


COMMANDS = {
    "run": Subcommand("Main", "improve a policy: run TASK [options]", "crbo_ros.commands.run", ros=True),
    "rollout": Subcommand("Main", "run one policy once and draw it", "crbo_ros.commands.rollout"),
    "operator": Subcommand("Main", "rearm, approve, clear, set a threshold", "crbo_ros.commands.operator", ros=True),
    "accept": Subcommand(
        "Deploy",
        "old and new policy in turns, until it is certain which is better",
        "crbo_ros.commands.accept",
        ros=True,
    ),
    "rollback": Subcommand("Deploy", "put the former policy or values back", "crbo_ros.commands.rollback", ros=True),
    "score": Subcommand("Deploy", "a return on recorded bags: score BAG --return FILE", "crbo_ros.commands.score"),
    "summary": Subcommand("Look", "what came of an experiment", "crbo_ros.commands.summary"),
    "inspect": Subcommand("Look", "an experiment in the terminal", "crbo_ros.commands.inspect"),
    "advise": Subcommand("Look", "a threshold that theta_0 could keep", "crbo_ros.commands.advise"),
    "report": Subcommand("Look", "an experiment as HTML and PNG", "crbo_ros.commands.report"),
    "compare": Subcommand("Look", "several runs on one page, paired by seed", "crbo_ros.commands.compare"),
    "export": Subcommand("Look", "an experiment as CSV or MCAP, or its policy", "crbo_ros.commands.export"),
    "repair": Subcommand("Look", "bring back what damaged files lost", "crbo_ros.commands.repair"),
    "gui": Subcommand(
        "Look", "the live monitor window", "crbo_ros.commands.gui", needs=("core", "sim", "gui"), ros=True
    ),
    "train": Subcommand(
        "Policies",
        "make an initial policy: train NAME",
        "crbo_ros.training.{}",
        needs=("core", "sim", "torch", "train"),
    ),
    "demo": Subcommand("Policies", "fit a movement primitive to a demonstration", "crbo_ros.commands.demo", ros=True),
    "import-sb3": Subcommand(
        "Policies",
        "import a stable-baselines3 agent",
        "crbo_ros.commands.import_sb3",
        needs=("core", "sim", "torch", "train"),
    ),
    "bench": Subcommand(
        "Measure", "a benchmark: bench NAME", "crbo_ros.bench.{}", needs=("core", "sim", "torch", "bench"), ros=True
    ),
    "test": Subcommand(
        "Develop",
        "lint, types and tests: test [--slow] [pytest arguments]",
        "crbo_ros.commands.test",
        needs=("core", "sim", "bench", "test", "gui"),
        ros=True,
        slow_needs=("torch", "docs"),
    ),
    "check-runner": Subcommand(
        "Develop", "a runner of your own against the protocol", "crbo_ros.commands.check_runner", ros=True
    ),
    "policies": Subcommand("Develop", "SROS2's policies for a graph", "crbo_ros.commands.policies"),
    "doctor": Subcommand("Develop", "check this installation, or mend it", "crbo_ros.commands.doctor", ros=True),
    "setup": Subcommand("Develop", "what a command needs, also without a network", "crbo_ros.commands.setup", needs=()),
    "shell": Subcommand("Develop", "a shell with the environment set", "crbo_ros.commands.shell", ros=True),
    "docs": Subcommand("Develop", "build the site of docs/", "crbo_ros.commands.docs", needs=("core", "docs")),
    "reference": Subcommand("Develop", "write docs/API.md from the declarations", "crbo_ros.commands.reference"),
}


def module_of(argv: list[str]) -> str | None:
    """The module behind a command line, or None if it names no command (then the help is shown)."""
    if not argv or argv[0] not in COMMANDS:
        return None
    module = COMMANDS[argv[0]].module
    if "{}" not in module:
        return module
    if len(argv) < 2 or argv[1].startswith("-"):
        return None
    return module.format(argv[1].replace("-", "_"))


def needs_of(argv: list[str]) -> tuple[tuple[str, ...], bool]:
    """The purposes (files in requirements/) that a command line needs installed, and whether it needs ROS."""
    command = COMMANDS[argv[0]]
    return (*command.needs, *(command.slow_needs if "--slow" in argv else ())), command.ros


def sub_names(command: str) -> list[str]:
    """The names that may follow `bench` and `train`: modules with a `run`, by their file names."""
    folder = Path(__file__).parent / COMMANDS[command].module.split(".")[1]
    return sorted(
        path.stem.replace("_", "-")
        for path in folder.glob("*.py")
        if "\ndef add_arguments(parser: argparse.ArgumentParser) -> None:" in path.read_text()
    )


def help_text() -> str:
    """The overview, in groups. Commands whose module is not there are left out."""
    lines = ["usage: crbo COMMAND [options]        crbo COMMAND --help        crbo COMMAND ... --debug", ""]
    lines.append("Improve a robot's policy on the robot itself, cautiously (CRBO).")
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        for name, command in COMMANDS.items():
            if command.group == group:
                lines.append(f"  {name:11} {command.help}")
                if "{}" in command.module:
                    lines.append(f"  {'':11} NAME: {', '.join(sub_names(name))}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors are a sentence, not a traceback, unless --debug is given."""
    from crbo_ros.errors import DEBUG, explain

    argv = sys.argv[1:] if argv is None else argv
    if "--debug" in argv:
        os.environ[DEBUG] = "1"
        argv = [word for word in argv if word != "--debug"]
    try:
        code = dispatch(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # crbo inspect | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        print(f"crbo: {explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncrbo: interrupted", file=sys.stderr)
        return 130


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for packages that are not installed yet, so that a command's arguments can be read without them."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] in ("crbo_ros", *sys.stdlib_module_names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(_Nothing, name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


class _AnyClass(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing

    def __getitem__(cls, item: object) -> type:
        return _Nothing

    def __or__(cls, other: object) -> Any:
        return _Nothing

    __ror__ = __or__  # type: ignore[assignment]


class _Nothing(metaclass=_AnyClass):
    """Anything of an absent package: a class, a function, a decorator, a constant."""

    def __new__(cls, *args: object, **options: object) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not options else super().__new__(cls)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing

    def __call__(self, *args: object, **options: object) -> object:
        return args[0] if len(args) == 1 and callable(args[0]) else self


def before_setup(argv: list[str], fresh: bool = True) -> int | None:
    """What can be said before anything is installed: help, misspelt names and options. None: go on.

    Absent packages are stood in for; the process that goes on is another one. `fresh`: no package of somebody else's
    can be installed, so that our own tasks are all there are.
    """
    words = 2 if "{}" in COMMANDS[argv[0]].module else 1
    if words == 2 and argv[1] not in (there := sub_names(argv[0])):
        print(f"crbo: there is no {argv[0]} {argv[1]!r}; there are: {', '.join(there)}", file=sys.stderr)
        return 2
    finder = Absent()
    sys.meta_path.append(finder)
    try:
        module = import_module(str(module_of(argv)))
        parser = parser_of(module, argv[:words])
        args, rest = parser.parse_known_args(argv[words:])
        if rest and not getattr(module, "TAKES_UNKNOWN", False):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        if fresh and argv[0] in ("run", "rollout"):
            from crbo_ros.registry import TASKS, did_you_mean

            if args.task not in TASKS and not Path(args.task).exists():
                near = did_you_mean(args.task, TASKS) or f"; there are: {', '.join(TASKS)}"
                print(f"crbo: no task is called {args.task!r}{near}", file=sys.stderr)
                return 2
    except Exception:  # what cannot be read without its packages is read with them
        if set(argv) & {"-h", "--help"}:
            source = Path(__file__).parent.joinpath(*str(module_of(argv)).split(".")[1:]).with_suffix(".py")
            print(f"{ast.get_docstring(ast.parse(source.read_text()))}\n\n(its options: after the first start)")
            return 0
    finally:
        sys.meta_path.remove(finder)
    return None


def parser_of(module: ModuleType, words: list[str]) -> argparse.ArgumentParser:
    """The arguments of a command's module."""
    from crbo_ros.errors import as_called

    description = as_called(module.__doc__ or "")
    parser = argparse.ArgumentParser(prog=f"crbo {' '.join(words)}", description=description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    return parser


def dispatch(argv: list[str]) -> int:
    """Find the command's module and run it."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # threads make problems of this size 5x to 50x slower
    name = module_of(argv)
    if name is None:
        print(help_text())
        if argv and argv[0] not in ("-h", "--help", "help"):
            wrong = f"{argv[0]} needs a NAME" if argv[0] in COMMANDS else f"no command is called {argv[0]!r}"
            print(f"\ncrbo: {wrong}", file=sys.stderr)
            return 2
        return 0
    words = 2 if "{}" in COMMANDS[argv[0]].module else 1
    there = words == 1 or argv[1].replace("_", "-") in sub_names(argv[0])
    try:
        module = import_module(name) if there else None
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        module = None
    if module is None:
        print(f"crbo: there is no '{' '.join(argv[:words])}'\n\n{help_text()}", file=sys.stderr)
        return 2
    parser = parser_of(module, argv[:words])
    if getattr(module, "TAKES_UNKNOWN", False):
        args, rest = parser.parse_known_args(argv[words:])
        args.rest = rest
    else:
        args = parser.parse_args(argv[words:])
    return int(module.run(args) or 0)


if __name__ == "__main__":
    sys.exit(main())
