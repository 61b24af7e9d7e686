"""Progress of long fits: on stderr, on terminals, and only after some seconds."""

import io
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from pairity._utils import progress
from support.fit_cases import MinimalRanker, fit


class FakeTerminal(io.StringIO):
    def isatty(self):
        return True


class FakeTimer:
    """Fires when a test calls its function."""

    created: list

    def __init__(self, seconds, function):
        self.seconds, self.function = seconds, function
        self.waiting = False
        FakeTimer.created.append(self)

    def start(self):
        self.waiting = True

    def cancel(self):
        self.waiting = False


@pytest.fixture
def stderr(monkeypatch, request):
    """A fake stderr, a terminal by default or a log, with timers that tests fire."""
    FakeTimer.created = []
    monkeypatch.setattr(progress, "Timer", FakeTimer)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    created = getattr(request, "param", FakeTerminal)()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=created, modules={}))
    return created


log = pytest.mark.parametrize("stderr", [io.StringIO], indirect=True, ids=["log"])


def fire_in(fit_number):
    """A ranker that fires all timers during a fit, as if it took long."""

    def act(number):
        if number == fit_number:
            for timer in FakeTimer.created:
                timer.function()

    return MinimalRanker(act)


def test_progress_of_a_long_fit_on_a_terminal(two_groups, capsys, stderr):
    fit(two_groups, ranker=fire_in(1), solver="plain")
    (timer,) = FakeTimer.created
    assert timer.seconds == progress.PATIENCE == 2.0
    assert not timer.waiting
    output = stderr.getvalue()
    assert "Reweighting" in output
    assert "1/5" in output
    assert "violation" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")  # the cursor is back
    assert capsys.readouterr().out == ""


def test_progress_of_a_single_long_round(two_groups, stderr):
    fit(two_groups, ranker=fire_in(0), max_rounds=0)
    assert "0/1" in stderr.getvalue()


def test_no_progress_of_a_quick_fit(two_groups, stderr):
    fit(two_groups)
    (timer,) = FakeTimer.created
    assert not timer.waiting
    timer.function()  # fires at the last moment
    assert stderr.getvalue() == ""


def test_progress_ends_with_an_error(two_groups, stderr):
    def act(number):
        FakeTimer.created[0].function()
        raise MemoryError

    with pytest.raises(MemoryError):
        fit(two_groups, ranker=MinimalRanker(act))
    output = stderr.getvalue()
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_progress_does_not_redirect_stdout(two_groups, capsys, stderr):
    """A ranker can print to stdout while the bar is shown."""

    def act(number):
        if number == 0:
            FakeTimer.created[0].function()
        sys.stdout.write(f"fit {number}\n")

    fit(two_groups, ranker=MinimalRanker(act), max_rounds=1, solver="plain")
    assert capsys.readouterr().out == "fit 0\nfit 1\n"
    assert "fit 0" not in stderr.getvalue()


def test_progress_can_be_silenced(two_groups, stderr):
    fit(two_groups, ranker=fire_in(0), progress=False)
    assert not FakeTimer.created
    assert stderr.getvalue() == ""


@log
def test_progress_is_for_terminals(two_groups, stderr):
    fit(two_groups, ranker=fire_in(0))
    assert not FakeTimer.created


@log
def test_progress_true_writes_plain_lines_to_a_log(two_groups, capsys, monkeypatch, stderr):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    fit(two_groups, ranker=fire_in(1), solver="plain", progress=True)
    lines = stderr.getvalue().splitlines()
    assert lines[0].startswith("Reweighting: 1/5, violation 0.")
    assert lines[-1].startswith("Reweighting: 5/5, violation 0.")
    assert lines[-1].endswith(" s")
    assert len(lines) == 5
    assert "\x1b" not in stderr.getvalue()
    assert capsys.readouterr().out == ""


def test_progress_is_not_for_workers(two_groups, stderr):
    worker = threading.Thread(target=fit, args=(two_groups,), kwargs={"max_rounds": 0})
    worker.start()
    worker.join()
    assert not FakeTimer.created


def test_progress_with_a_real_clock(two_groups, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    terminal = FakeTerminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=terminal))
    fit(two_groups, ranker=MinimalRanker(lambda _: time.sleep(0.3)), max_rounds=0)
    assert "Reweighting" in terminal.getvalue()


def test_nothing_is_written_without_a_stderr(two_groups, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    fit(two_groups, max_rounds=1, progress=True)
