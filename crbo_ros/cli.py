"""The `crbo` command: one table of commands, each a module with `add_arguments(parser)` and `run(args) -> int`.

Standard library only, so that `./crbo --help` works before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class Subcommand:
    """One command of the command line: which group of the help, what it does, where, and what it needs installed."""

    group: str
    help: str
    module: str  # "{}" stands for the next argument (bench NAME, train NAME)
    needs: tuple[str, ...] = ("core", "sim")  # purposes: files in requirements/
    ros: bool = False  # needs ROS and the built interfaces


COMMANDS = {
    "run": Subcommand("Main", "improve a policy: run TASK [options]", "crbo_ros.commands.run", ros=True),
    "rollout": Subcommand("Main", "run one policy once and draw it", "crbo_ros.commands.rollout"),
    "operator": Subcommand("Main", "rearm, approve, clear, set a threshold", "crbo_ros.commands.operator", ros=True),
    "inspect": Subcommand("Look", "an experiment in the terminal", "crbo_ros.commands.inspect"),
    "advise": Subcommand("Look", "a threshold that theta_0 could keep", "crbo_ros.commands.advise"),
    "report": Subcommand("Look", "an experiment as HTML and PNG", "crbo_ros.commands.report"),
    "export": Subcommand("Look", "an experiment as CSV or MCAP", "crbo_ros.commands.export"),
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
        needs=("core", "sim", "torch", "bench", "test", "gui"),
        ros=True,
    ),
    "doctor": Subcommand("Develop", "check this installation", "crbo_ros.commands.doctor", ros=True),
    "shell": Subcommand("Develop", "a shell with the environment set", "crbo_ros.commands.shell", ros=True),
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
    parser = argparse.ArgumentParser(prog=f"crbo {' '.join(argv[:words])}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    if getattr(module, "TAKES_UNKNOWN", False):
        args, rest = parser.parse_known_args(argv[words:])
        args.rest = rest
    else:
        args = parser.parse_args(argv[words:])
    return int(module.run(args) or 0)


if __name__ == "__main__":
    sys.exit(main())
