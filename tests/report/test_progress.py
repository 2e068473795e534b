"""Progress under a clock that the test sets."""

import io
import re

import pytest

from sim.report.progress import Estimate, Progress


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream):
    """What was written, without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Clock()


def test_progress_before_two_seconds_writes_nothing(clock):
    """A short run leaves no trace in the terminal."""
    stream = Terminal()
    with Progress(100, stream=stream, clock=clock) as progress:
        for done in range(100):
            clock.now_s += 0.0199
            progress.update(done, done)
    assert stream.getvalue() == ""


def test_progress_in_terminal_shows_bar_and_time_left(clock):
    """After 4 s a quarter is done, so 12 s are left."""
    stream = Terminal()
    with Progress(200, stream=stream, clock=clock) as progress:
        clock.now_s += 4.0
        progress.update(50, 90_000_000_000)
    text = shown(stream)
    assert "50/200" in text
    assert "90.0 s served" in text
    assert "12 s left" in text


def test_progress_in_terminal_redraws_at_most_ten_times_a_second(clock):
    """A million updates must not become a million redraws."""
    stream = Terminal()
    with Progress(10_000, stream=stream, clock=clock) as progress:
        clock.now_s += 3.0
        progress.update(0, 0)
        before = len(stream.getvalue())
        for done in range(99):
            clock.now_s += 0.001
            progress.update(done, 0)
        assert len(stream.getvalue()) == before
        clock.now_s += 0.002
        progress.update(99, 0)
        assert len(stream.getvalue()) > before


def test_progress_elsewhere_writes_one_plain_line_every_ten_seconds(clock):
    """A log file gets lines, no bars."""
    stream = io.StringIO()
    with Progress(1_000, stream=stream, clock=clock) as progress:
        for second in range(1, 36):
            clock.now_s += 1.0
            progress.update(10 * second, second * 10**9)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "100/1,000 requests, 10.0 s served, 1:30 min left"
    assert len(lines) == 3
    assert "\x1b" not in stream.getvalue()


def test_progress_before_first_finish_states_no_time_left(clock):
    """Nothing done, nothing to extrapolate from."""
    stream = io.StringIO()
    progress = Progress(10, stream=stream, clock=clock)
    clock.now_s += 11.0
    progress.update(0, 0)
    assert "left" not in stream.getvalue()


@pytest.mark.parametrize(
    ("point_s", "lines"),
    [(30.0, ["sweep: the other 396 points take about 49:30 min"]), (0.2, [])],
)
def test_estimate_is_said_once_after_the_first_points_of_many(clock, point_s, lines):
    """Four points at a time; what takes less than a minute needs no estimate."""
    said = []
    estimate = Estimate("sweep", 4, say=said.append, clock=clock)
    estimate.update(0, 400)
    clock.now_s += point_s
    for done in range(1, 9):
        estimate.update(done, 400 - done)
    assert said == lines
