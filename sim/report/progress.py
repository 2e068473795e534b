"""Shows on stderr how far a run has come and the time left, if it takes over two seconds."""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, TextIO

from sim.core.errors import say
from sim.core.units import NS_PER_S

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_QUIET_S = 2.0
_BAR_EVERY_S = 0.1
_LINE_EVERY_S = 10.0
_SHORT_S = 60.0


def _requests_served(now_ns: int) -> str:
    return f"requests, {now_ns / NS_PER_S:,.1f} s served"


class Progress:
    """A bar in a terminal, from two seconds on; elsewhere a line every 10 s.

    Use as a context manager, so that the bar is cleared however the run ends.

    `text` returns the words after the numbers (`requests, 3.5 s served`) for a time of the run in
    ns; without a `stream`, they go to stderr; the `clock` gives monotonic seconds.
    """

    def __init__(
        self,
        total: int,
        *,
        text: Callable[[int], str] = _requests_served,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._text = text
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began_s = clock()
        # A dumb terminal cannot redraw a line.
        self._in_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._next_s = self._began_s + (_QUIET_S if self._in_terminal else _LINE_EVERY_S)
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, done: int, now_ns: int) -> None:
        """Show how many are done at `now_ns`, a time of the run. Cheap: call it every step."""
        clock_s = self._clock()
        if clock_s < self._next_s:
            return
        if self._in_terminal:
            self._next_s = clock_s + _BAR_EVERY_S
            self._show_bar(done, self._describe(done, now_ns, clock_s))
        else:
            self._next_s = clock_s + _LINE_EVERY_S
            self._stream.write(
                f"{done:,}/{self._total:,} {self._describe(done, now_ns, clock_s)}\n"
            )
            self._stream.flush()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _describe(self, done: int, now_ns: int, clock_s: float) -> str:
        text = self._text(now_ns)
        if 0 < done <= self._total:
            left_s = (clock_s - self._began_s) * (self._total - done) / done
            text += f", {_duration(left_s)} left"
        return text

    def _show_bar(self, done: int, text: str) -> None:
        if self._bar is None:
            self._bar = _new_bar(self._stream)
            self._bar.add_task("", total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, description=text)
        self._bar.refresh()


class Estimate:
    """Says once, when each worker may have done a point, about how long the others take.

    It says nothing if that is less than a minute.
    """

    def __init__(
        self,
        what: str,
        workers: int,
        *,
        say: Callable[[str], None] = say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._workers = workers
        self._say = say
        self._clock = clock
        self._began_s = clock()
        self._is_due = True

    def update(self, num_done: int, num_left: int) -> None:
        """Tell how many points have run since the beginning, and how many have to."""
        if num_done < self._workers or not self._is_due:
            return
        self._is_due = False
        left_s = (self._clock() - self._began_s) * num_left / num_done
        if left_s >= _SHORT_S:
            self._say(f"{self._what}: the other {num_left:,} points take about {_duration(left_s)}")


def _new_bar(stream: TextIO) -> "Bar":
    # Most runs end before anything is shown, and do not load rich.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    return Bar(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
    )


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3_600}:{whole % 3_600 // 60:02d} h"
