"""The lines of a log in one or several files, as an engine wrote them, and their times.

Colours are taken out. A progress bar writes itself anew after each carriage return; what stands
after the last one is the line. Invalid UTF-8 is left as it is: lines are bytes.

A log's collector may put its own stamp before each line: a count of time since 1970 and a tab, in
s, ms, us or ns; or `2026-06-11T04:38:42.123456789Z`, as docker and Kubernetes do. It is finer than
most engines'.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sim.core.errors import InputError
from sim.core.packed import MAX_LINE_BYTES, open_unpacked

_COLOUR = re.compile(rb"\x1b\[[0-9;?]{0,20}[A-Za-z]")


class Lines:
    """The lines of files that follow each other. It is iterated once.

    Attributes:
        cut: how many files end within a line. Such a line is not yielded: its last number may not
            be whole.
        number: the number of the line yielded last, counted from 1 over all files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.cut = 0
        self.number = 0
        self._paths = paths

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines without their ends.

        Raises InputError: a file cannot be read, or a line is longer than a line of text can be.
        """
        for path in self._paths:
            num_before = self.number
            with open_unpacked(path) as unpacked:
                rest = b""
                for part in unpacked.parts():
                    # Parts have a megabyte. To ask the file for each line would take longer than
                    # to read what the line says.
                    lines = (rest + part if rest else part).split(b"\n")
                    rest = lines.pop()
                    if len(rest) > MAX_LINE_BYTES:
                        reason = f"is longer than {MAX_LINE_BYTES >> 20} MiB: not a line of text"
                        raise InputError(f"{path}:{self.number - num_before + 1}: {reason}")
                    for line in lines:
                        self.number += 1
                        yield line
            if rest:
                self.cut += 1
                self.number += 1


def cleaned(line: bytes) -> bytes:
    """The line without colours, and without what a progress bar has overwritten."""
    if b"\x1b" in line:
        line = _COLOUR.sub(b"", line)
    if b"\r" in line:
        line = line.rstrip(b"\r")
        line = line[line.rfind(b"\r") + 1 :]
    return line


US_PER_S = 1_000_000
# vLLM's log has no year. In this one, a leap year, 29 February is a day, too.
NO_YEAR = 1972
# Seconds since 1970 have ten digits until the year 2286.
_COUNT = re.compile(rb"(\d{10,19})(?:\.(\d{1,9}))?(?![\d.])")
_COUNT_DIGITS, _US_DIGITS = 10, 16
_ISO = re.compile(
    rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
# What docker compose puts before each line: the name of the service.
_COMPOSE = re.compile(rb"[\w.-]{1,100} {0,40}\| ")
_HOURS_OF_DAY = 24


class LineTimes:
    """Times of the lines of one log, all by one clock: that of its first line with a time.

    Attributes:
        resolution_us: the finest unit of the times so far, in microseconds.
        uses_stamps: whether times are those of stamps before the lines; None: no line had one yet.
    """

    def __init__(self) -> None:
        self.resolution_us = US_PER_S
        self.uses_stamps: bool | None = None
        self._second = b""
        self._second_us: int | None = None

    def at_us(self, before: bytes, second: bytes, fraction: bytes | None) -> int | None:
        """The time of a line, in microseconds; None if it has none.

        `before` is what stands before the engine's line, `second` and `fraction` are its own time.
        """
        if self.uses_stamps is not False:
            stamp_us = self._stamp_us(before) if before else None
            if self.uses_stamps is None and (second or stamp_us is not None):
                self.uses_stamps = stamp_us is not None
            if self.uses_stamps:
                return stamp_us
        if not second:
            return None
        if second != self._second:
            self._second, self._second_us = second, _of_second(second)
        if self._second_us is None or not fraction:
            return self._second_us
        return self._second_us + self._of_fraction(fraction)

    def _stamp_us(self, before: bytes) -> int | None:
        if b"| " in before and (service := _COMPOSE.match(before)) is not None:
            before = before[service.end() :]
        if (found := _COUNT.match(before)) is not None:
            count, fraction = found.groups()
            if fraction is None and len(count) == _US_DIGITS and self.resolution_us == 1:
                return int(count)
            second, rest = count[:_COUNT_DIGITS], count[_COUNT_DIGITS:]
            if len(rest) % 3 or (rest and fraction):
                return None
            return int(second) * US_PER_S + self._of_fraction(fraction or rest)
        if (found := _ISO.match(before)) is None:
            return None
        day, clock, fraction, zone = found.groups()
        second_us = _of_second(day + b" " + clock)
        if second_us is None:
            return None
        return second_us + self._of_fraction(fraction or b"") - _offset_us(zone)

    def _of_fraction(self, digits: bytes) -> int:
        unit_us = 10 ** max(0, 6 - len(digits))
        if unit_us < self.resolution_us:
            self.resolution_us = unit_us
        return int(digits[:6].ljust(6, b"0"))


def _of_second(text: bytes) -> int | None:
    """Microseconds of `2026-06-11 04:38:42` or `06-11 04:38:42`; None: there is no such time."""
    full = text.decode() if len(text) > len("06-11 04:38:42") else f"{NO_YEAR}-{text.decode()}"
    try:
        moment = datetime.strptime(full, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * US_PER_S


def _offset_us(zone: bytes | None) -> int:
    """How much later a zone's clock is than UTC."""
    if zone is None or zone == b"Z":
        return 0
    hours, minutes = int(zone[1:3]) % _HOURS_OF_DAY, int(zone[-2:])
    return (hours * 60 + minutes) * 60 * US_PER_S * (-1 if zone.startswith(b"-") else 1)
