"""The code blocks of the documents, and a folder in which they are run as a reader would run them.

What a block is, its language and its first line say:

    bash    commands, run in turn; a line with `# leave it running` goes on in a terminal of its own, and a line
            `# Ctrl-C` ends the last one that does
    text    what the commands before it print: line by line, any number for a number, anything for `...`
    yaml, python    with a file's name in a comment as first line, that file; Python without one is run as it is
    sh      commands for a machine that the tests are not on (test_commands.py says why)
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import matplotlib as mpl

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.:]\d+)*(?:e[-+]?\d+)?(?![\w.]*\w)")
A_NUMBER = r"[-+]?\d[\d.:]*(?:e[-+]?\d+)?"
LINKED = ("crbo", "examples", "config")
_count = itertools.count()
ANSWERS = "yes\n" + "no\n" * 9  # to whatever asks: connect, but turn no motor
SECONDS = 120.0  # that one command may take, on a busy machine


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and where it begins."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The name in the first line's comment, if it is one."""
        found = re.match(r"# ([\w./]+\.(?:py|yaml))\n", self.text)
        return found[1] if found else ""

    @property
    def lines(self) -> list[str]:
        """Its lines, with continued ones joined."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]

    @property
    def commands(self) -> list[str]:
        """Its command lines as they are typed, without comments and superfluous spaces."""
        return [" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in self.lines if not line.startswith("#")]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page that name a language."""
    text = page.read_text()
    return [Block(page, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in BLOCK.finditer(text)]


class Reader:
    """Somebody who follows a page: a folder with a clone's ./crbo in it, a home of its own, a ROS domain of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("CRBO_HOME", "ROS_HOME")},
            "HOME": str(folder),
            "MPLCONFIGDIR": mpl.get_cachedir(),  # (its list of fonts takes seconds)
            "ROS_DOMAIN_ID": str(20 + (7 * os.getpid() + next(_count)) % 80),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
            "FASTDDS_BUILTIN_TRANSPORTS": "UDPv4",
            "QT_QPA_PLATFORM": "offscreen",
            **environment,
        }
        self.printed = ""  # by the last block of commands
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._running:
            self.interrupt()

    @property
    def told(self) -> str:
        """What the last block of commands printed, and what is running now."""
        return self.printed + "".join(log.read_text() for _, log in self._running)

    def follow(self, given: list[Block]) -> None:
        """The blocks, in their order."""
        for block in given:
            if block.file:
                (self.folder / block.file).write_text(block.text)
            elif block.language == "bash":
                self.run(block)
            elif block.language == "text":
                self.compare(block)
            elif block.language == "python":
                self.printed = self._call(block, [sys.executable, "-c", block.text])

    def run(self, block: Block) -> None:
        self.printed = ""
        for line in block.lines:
            if "# leave it running" in line:
                self._leave_running(line)
            elif line.startswith("# Ctrl-C"):
                self.interrupt()
            elif not line.startswith("#"):
                self.printed += self._call(block, ["bash", "-c", line])

    def compare(self, block: Block) -> None:
        deadline = time.monotonic() + SECONDS
        for line in filter(str.strip, block.text.splitlines()):
            while not shows(line, self.told):
                running = any(process.poll() is None for process, _ in self._running)
                if not running or time.monotonic() > deadline:
                    raise AssertionError(f"{block}: no {line!r} in what was printed:\n{self.told}")
                time.sleep(0.1)

    def interrupt(self) -> None:
        """Ctrl-C in the terminal that was opened last."""
        process, log = self._running.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"Ctrl-C did not end {process.args!r}:\n{log.read_text()}") from None
        self.printed += log.read_text()

    def _leave_running(self, line: str) -> None:
        log = self.folder / f"terminal_{time.monotonic_ns()}.txt"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._running.append((process, log))

    def _call(self, block: Block, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, input=ANSWERS, text=True, timeout=SECONDS, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}: {command[-1]}\n{done.stdout}\n{self.told}"
        return done.stdout


def shows(line: str, printed: str) -> bool:
    """Whether a line was printed: with any number for a number, any spaces for spaces, and anything for `...`."""
    words = (r"\s+".join(".*".join(map(re.escape, word.split("..."))) for word in re.split(r"\s+", part))
             for part in NUMBER.split(line.strip()))  # fmt: skip
    return re.search(A_NUMBER.join(words), printed) is not None
