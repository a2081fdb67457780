"""The plant host's own loop, in this process and with its time in hand: what it does with each packet and each request.

(test_host.py has the whole thing, in a process of its own.)
"""

from __future__ import annotations

import json
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError
from crbo_ros.plants import host as module
from crbo_ros.plants.host import FAILURE, Gone, Host, packing, unpacked

ORDERED: list[Job] = []  # made by main() in the tests of it
CALLED: list[tuple[Any, ...]] = []  # by main()


class Job:
    """Notes what is done to it."""

    def __init__(self, self_paced: bool = False, say: Any = None, refuse: str = "") -> None:
        if refuse:
            raise PlantError(refuse)
        self.self_paced = self_paced
        self.commands: list[list[float]] = []
        self.made_safe: list[bool] = []
        self.closed = 0
        self.measured: Any = [1.5]
        self.error: BaseException | None = None
        self.safe: Any = Safe(True, "0 V")
        ORDERED.append(self)

    def command(self, values: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.commands.append(values)
        return self.measured

    def make_safe(self, last: bool) -> Any:
        self.made_safe.append(last)
        if isinstance(self.safe, BaseException):
            raise self.safe
        return self.safe

    def close(self) -> None:
        self.closed += 1


class LongJob(Job):
    """One that listens while it is at work."""

    heard: Callable[[], list[Any] | None] | None = None


def packet(sequence: int, value: float = 2.0, deadline: float = 1e9) -> bytes:
    return packing(1).pack(sequence, deadline, value)


class Bench:
    """A host with both of its sockets' other ends, and its clock."""

    def __init__(self, job: Job | None = None, **options: Any) -> None:
        self.now, self.job, self.numbers = 10.0, job or Job(), 0
        self.data, data = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.data, self.control):
            end.settimeout(60.0)
        self.host = Host(self.job, data, control, **{"patience": 0.5, "clock": lambda: self.now, **options})

    def ask(self, do: str) -> int:
        self.numbers += 1
        self.control.send(json.dumps({"do": do, "number": self.numbers}).encode())
        return self.numbers

    def answer(self) -> dict[str, Any]:
        return dict(json.loads(self.control.recv(1 << 16)))

    def request(self, do: str) -> dict[str, Any]:
        number = self.ask(do)
        assert self.host._answered([self.host.control], 0.0) is self.host.control
        answer = self.answer()
        assert answer.pop("number") == number
        return answer

    def command(self, sequence: int, value: float = 2.0, deadline: float = 1e9) -> None:
        self.host._command(packet(sequence, value, deadline))

    def offer(self, sequence: int) -> dict[str, Any]:
        """What a host that serves and is not armed answers to a command."""
        server = threading.Thread(target=self.host.serve, daemon=True)
        server.start()
        self.data.send(packet(sequence))
        words = self.data.recv(1 << 16)
        self.ask("dismiss")
        server.join(60.0)
        self.answer()
        self.host.dismissed = False
        assert words[:8] == FAILURE
        return dict(json.loads(words[8:]))

    def heard(self) -> list[bytes]:
        self.data.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.data.recv(1 << 16))
        except BlockingIOError:
            self.data.settimeout(60.0)
            return found

    def failure(self) -> dict[str, Any]:
        (words,) = self.heard()
        assert words[:8] == FAILURE
        return dict(json.loads(words[8:]))

    def close(self) -> None:
        for end in (self.data, self.control, self.host.data, self.host.control):
            end.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def one(job: Job | None = None, **options: Any) -> Bench:
        made.append(Bench(job, **options))
        return made[-1]

    yield one
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


def test_nothing_is_applied_before_it_is_armed_and_after_a_stop(bench: Bench) -> None:
    assert bench.offer(1) == {"why": module.STOPPED, "lapsed": False}
    bench.request("arm")
    bench.command(2)
    bench.heard()
    assert bench.request("stop")["confirmed"]
    assert bench.failure() == {"why": module.STOPPED, "lapsed": False}, "for whoever waits for a reading"
    assert bench.job.made_safe == [False]
    assert bench.offer(3)["why"] == module.STOPPED
    bench.request("arm")
    bench.request("disarm")
    assert bench.offer(4)["why"] == module.STOPPED
    assert bench.job.commands == [[2.0]]
    assert bench.job.made_safe == [False], "disarmed: the parent has made it safe itself"
    bench.request("stop")
    assert bench.heard() == [], "nobody waits for a reading of what was not armed"


def test_a_command_is_applied_once_in_its_order_and_before_its_deadline(bench: Bench) -> None:
    bench.request("arm")
    bench.command(5, 0.5)
    (reading,) = bench.heard()
    assert unpacked(reading) == (5, 0.0, 1.5)
    for sequence, deadline in ((5, 1e9), (4, 1e9), (6, 9.9)):
        bench.command(sequence, 7.0, deadline)
    assert (bench.job.commands, bench.heard()) == ([[0.5]], [])
    bench.command(6, 1.0, 10.0)
    assert bench.job.commands == [[0.5], [1.0]]
    bench.job.measured = None
    bench.heard()
    bench.command(7)
    assert bench.heard() == [], "a job that measures nothing says nothing"


def test_without_a_fresh_command_it_lapses_by_itself_and_says_so_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.request("arm")
    bench.command(1)
    bench.heard()
    bench.now += 0.2
    waits: list[float | None] = []

    def noted(_r: Any, _w: Any, _x: Any, left: float | None) -> tuple[list[Any], list[Any], list[Any]]:
        waits.append(left)
        if len(waits) == 2:
            raise Gone
        return [], [], []

    with monkeypatch.context() as patch:
        patch.setattr("select.select", noted)
        with pytest.raises(Gone):
            bench.host.serve()
    assert waits == [pytest.approx(0.3), None], "patience counts from the last command; what is not armed waits"
    assert bench.failure() == {"why": "no fresh command for 500 ms", "lapsed": True}
    assert (bench.host.armed, bench.job.made_safe) == (False, [True])
    assert "no fresh command" in bench.offer(2)["why"], "refused until it is armed anew"
    assert bench.request("stop")["reason"] == "0 V"
    assert bench.job.made_safe == [True], "what the lapse measured is the answer, once"
    bench.request("stop")
    assert bench.job.made_safe == [True, False]
    bench.request("arm")
    assert (bench.host.lapsed, bench.host._safe) == ("", None)


def test_a_lapse_before_arming_is_no_answer_to_a_stop_after_it(bench: Bench) -> None:
    bench.request("arm")
    bench.job.error = OSError("x")
    bench.command(1)
    bench.request("arm")
    bench.request("stop")
    assert bench.job.made_safe == [True, False], "measured anew"


@pytest.mark.parametrize(("patience", "first"), [(0.5, 0.5), (0.02, 0.1)])
def test_the_first_command_may_take_as_long_as_a_start_takes(
    make: Callable[..., Bench], patience: float, first: float
) -> None:
    bench = make(patience=patience)
    bench.request("arm")
    assert bench.host._expires - bench.now == pytest.approx(first)
    bench.now += 0.01
    bench.command(1)
    assert bench.host._expires - bench.now == pytest.approx(patience)


@pytest.mark.parametrize(
    ("error", "said"),
    [(PlantError("no card"), "no card"), (OSError("gone"), "OSError: gone"), (SystemExit(3), "SystemExit: 3")],
)
def test_a_job_that_raises_is_made_safe_at_once(bench: Bench, error: BaseException, said: str) -> None:
    bench.request("arm")
    bench.job.error = error
    bench.command(1)
    assert bench.failure() == {"why": said, "lapsed": True}
    assert (bench.job.made_safe, bench.host.armed) == ([True], False)


@pytest.mark.parametrize("safe", [OSError("unplugged"), "fine", None, True])
def test_what_is_no_answer_of_make_safe_is_not_taken_for_safe(bench: Bench, safe: Any) -> None:
    bench.job.safe = safe
    assert not bench.request("stop")["confirmed"]


def test_a_request_goes_before_a_command_and_dismissal_ends_it(bench: Bench) -> None:
    bench.request("arm")
    numbers = [bench.ask("stop"), bench.ask("dismiss")]
    bench.data.send(packet(1, 9.0))
    bench.host.serve()
    assert (bench.job.commands, bench.host.armed, bench.host.dismissed) == ([], False, True)
    assert [bench.answer()["number"] for _ in numbers] == numbers


@pytest.mark.parametrize(("rate", "first"), [(0.0, (2, 0.5)), (100.0, (1, 0.01))])
def test_a_command_that_waits_is_applied_by_the_loop_when_it_is_due(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, rate: float, first: tuple[int, float]
) -> None:
    bench = make(rate=rate)
    bench.request("arm")
    bench.data.send(packet(1, 9.0))
    real, waits = select.select, list[tuple[int, float]]()

    def noted(sources: Any, _w: Any, _x: Any, left: float) -> Any:
        waits.append((len(sources), left))
        return real(sources, [], [], left)

    monkeypatch.setattr("select.select", noted)

    def command(values: list[float]) -> None:
        bench.job.commands.append(values)
        bench.host.dismissed = True

    bench.job.command = command  # type: ignore[method-assign, assignment]
    bench.host.serve()
    assert bench.job.commands == [[9.0]]
    assert waits == [pytest.approx(first)], "for its time, or for the command"


def test_a_paced_job_gets_its_command_when_it_is_due_and_not_before(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(rate=100.0)
    bench.data.send(packet(1))
    assert bench.host._due_command() == b"", "not armed"
    bench.request("arm")
    waits: list[float] = []

    def noted(_r: Any, _w: Any, _x: Any, left: float) -> tuple[list[Any], list[Any], list[Any]]:
        waits.append(left)
        return [], [], []

    with monkeypatch.context() as patch:
        patch.setattr("select.select", noted)
        assert bench.host._due_command() == packet(1)
        bench.now = 11.0
        assert bench.host._due_command() == b"", "none has come"
    assert waits == [pytest.approx(0.01), 0.0]
    bench.data.send(packet(2))
    bench.ask("stop")
    assert bench.host._due_command() == b"", "a request that comes meanwhile goes first, and nothing is applied"
    assert bench.answer()["confirmed"]
    assert bench.job.commands == []


def test_a_reading_tells_how_late_its_step_was(make: Callable[..., Bench]) -> None:
    for self_paced, elapsed in ((False, 0.013), (True, 0.014)):  # s, for a period of 0.01
        bench = make(Job(self_paced), rate=100.0)
        bench.now = 20.0
        bench.request("arm")  # the pace counts from here
        bench.now += elapsed
        bench.command(1)
        (reading,) = bench.heard()
        assert unpacked(reading) == (1, pytest.approx(elapsed - 0.01), 1.5)
        assert bench.request("statistics")["lateness_max_ms"] == pytest.approx(1e3 * (elapsed - 0.01))
        bench.now += 0.011
        bench.command(2)
        late = 0.001 if self_paced else (elapsed - 0.01) + 0.001  # of its own grid, or of the clock's
        assert unpacked(bench.heard()[0])[1] == pytest.approx(late)
        bench.request("pace")
        assert bench.request("statistics")["lateness_max_ms"] == 0.0, "of this episode"
    plain = make()
    assert (plain.request("statistics"), plain.request("pace")) == ({}, {})


def test_a_loop_that_is_too_late_lapses(make: Callable[..., Bench]) -> None:
    bench = make(rate=100.0, limits={"max_gap": 3.0})
    bench.request("arm")
    bench.now += 0.05
    bench.command(1)
    assert "late once" in bench.failure()["why"]
    assert (bench.job.commands, bench.job.made_safe) == ([], [True])


def test_a_long_job_hears_what_comes_meanwhile_and_stops_listening_for_a_request(make: Callable[..., Bench]) -> None:
    job = LongJob()
    bench = make(job)
    assert job.heard is not None
    assert job.heard() == []
    for i in (3, 4):
        bench.data.send(packet(i, float(i)))
    assert job.heard() == [[3.0], [4.0]]
    bench.request("arm")
    bench.command(4)
    assert job.commands == [], "heard already"
    bench.control.send(b"{}")
    assert job.heard() is None


def test_a_parent_that_does_not_read_does_not_block_the_host(bench: Bench) -> None:
    bench.request("arm")
    for i in range(1, 1000):
        bench.command(i)
    assert len(bench.job.commands) == 999


# -- the process ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_parent_that_is_gone_leaves_a_safe_plant_and_a_closed_one(
    bench: Bench, confirmed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.job.safe = Safe(confirmed, "measured")
    bench.request("arm")
    bench.data.close()
    bench.control.close()
    assert module._serve(bench.host, {"parent": 77}) == (0 if confirmed else 1)
    assert bench.job.made_safe == [True] * (1 if confirmed else 3), "it is tried three times"
    assert bench.job.closed == 1
    assert "process 77 is gone" in capsys.readouterr().err


def test_a_close_that_fails_is_said_in_the_exit_code(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def close() -> None:
        raise OSError("stuck")

    bench.ask("dismiss")
    assert module._serve(bench.host, {"parent": 77}) == 0
    bench.job.close = close  # type: ignore[method-assign]
    assert module._serve(bench.host, {"parent": 77}) == 1
    assert "closing failed: OSError: stuck" in capsys.readouterr().err
    assert bench.job.made_safe == [], "dismissed: the parent has said that all is well"


def called(name: str) -> Any:
    def call(*words: Any) -> list[str]:
        CALLED.append((name, *words))
        return ["a note"]

    return call


def test_what_came_meanwhile_is_read_without_waiting_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, waits, real = Bench(), list[float](), select.select

    def recorded(reads: Any, writes: Any, others: Any, seconds: float) -> Any:
        waits.append(seconds)
        return real(reads, writes, others, 0.0)

    monkeypatch.setattr("select.select", recorded)
    assert bench.host._heard() == []
    assert waits == [0.0, 0.0]


def run_main(monkeypatch: pytest.MonkeyPatch, *sent: dict[str, Any], refused: str = "") -> tuple[int, Any, list[int]]:
    """main() with a parent that sends this and goes: the exit code, the first answer, and the signals left alone."""
    ignored: list[int] = []
    for name in ("os.dup2", "os.nice", "crbo_ros.plants.host.real_time"):
        monkeypatch.setattr(name, called(name))
    monkeypatch.setattr("signal.signal", lambda number, action: ignored.append(number))
    monkeypatch.setattr("crbo_ros.plants.host.refuse_second", lambda lock, parent: refused)
    data, its_data = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with data, control:
        for number, words in enumerate(sent):
            control.send(json.dumps({"number": number, **words}).encode())
        control.shutdown(socket.SHUT_WR)
        code = module.main([str(its_data.detach()), str(its_control.detach())])
        answer = control.recv(1 << 16)
        return code, json.loads(answer) if answer else None, ignored


def order(**changes: Any) -> dict[str, Any]:
    job = f"{__name__}:Job"
    return {"lock": "", "parent": 77, "job": job, "arguments": {}, "patience": 1.0, "rate": 0.0, "limits": {}} | changes


@pytest.mark.parametrize(("rate", "notes"), [(0.0, []), (100.0, ["a note"])])
def test_it_makes_its_job_says_so_and_serves_deaf_to_signals(
    monkeypatch: pytest.MonkeyPatch, rate: float, notes: list[str]
) -> None:
    CALLED.clear()
    code, answer, ignored = run_main(monkeypatch, order(rate=rate), {"do": "arm"}, {"do": "stop"}, {"do": "dismiss"})
    assert (code, answer) == (0, {"ready": True, "notes": notes})
    assert {("os.dup2", 2, 1), ("os.nice", -10)} <= set(CALLED), "what it prints is for the log; it is not kept waiting"
    assert set(ignored) >= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE}
    assert (ORDERED[-1].made_safe, ORDERED[-1].closed) == ([False], 1)


def test_a_second_host_and_a_job_that_cannot_be_made_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = len(ORDERED)
    assert run_main(monkeypatch, order(), refused="another one")[:2] == (1, {"refused": "another one"})
    code, answer, _ = run_main(monkeypatch, order(arguments={"refuse": "no card"}))
    assert (code, answer) == (1, {"refused": "no card", "kind": "PlantError"})
    assert len(ORDERED) == made, "nothing was opened"


def test_a_parent_that_goes_before_it_gave_an_order_has_moved_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = len(ORDERED)
    assert run_main(monkeypatch)[:2] == (0, None)
    assert len(ORDERED) == made
