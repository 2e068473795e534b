"""Prometheus' text format, as far as servers of language models write it."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

# A sample: its name, its labels, its value, and perhaps its time in milliseconds.
_SAMPLE = re.compile(
    r"([A-Za-z_:][\w:]{0,200})(\{.{0,20000}\})? {1,9}(\S{1,40})(?: {1,9}(-?\d{1,20}))?"
)
_LABEL = re.compile(r'[{,]([A-Za-z_]\w{0,100})="((?:[^"\\]|\\.){0,4000})"')
# In a file of many scrapes, the line before each: when it was made.
_MARK = re.compile(r"# scraped (\d{1,17})\s*")
# Larger numbers are no counts, times or shares of any server.
_MOST = 1e15


class Sample(NamedTuple):
    """One number, and the labels that tell it from others of its name.

    `at_ms` is its own time, in milliseconds since 1970; None: it has none.
    """

    labels: Mapping[str, str]
    value: float
    at_ms: int | None = None


def scraped_us(line: str) -> int | None:
    """The time of a line `# scraped MICROSECONDS`, since 1970; None: it is another line."""
    mark = _MARK.fullmatch(line)
    return None if mark is None else int(mark[1])


def read_sample(line: str, wanted: Collection[str]) -> tuple[str, Sample] | None:
    """The sample of a line and its name, if that is wanted.

    None for other names, comments, lines that are no samples, and numbers that are not finite or
    beyond all measure.
    """
    # Most lines are of other names: those are not taken to pieces.
    name = line.partition("{")[0].partition(" ")[0]
    if name not in wanted or (match := _SAMPLE.fullmatch(line.strip())) is None:
        return None
    try:
        value = float(match[3])
    except ValueError:
        return None
    if not abs(value) <= _MOST:  # infinite, or NaN
        return None
    at_ms = None if match[4] is None else int(match[4])
    return name, Sample(dict(_LABEL.findall(match[2] or "")), value, at_ms)


def read_samples(lines: Iterable[str], wanted: Collection[str]) -> dict[str, list[Sample]]:
    """The samples of these names, by name, in the order of the text."""
    found: dict[str, list[Sample]] = {}
    for line in lines:
        if (named := read_sample(line, wanted)) is not None:
            found.setdefault(named[0], []).append(named[1])
    return found
