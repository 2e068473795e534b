"""Prometheus' text format, as far as servers of language models write it."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

# A sample: its name, its labels, its value, and perhaps a time that is not needed.
_SAMPLE = re.compile(
    r"([A-Za-z_:][\w:]{0,200})(\{.{0,20000}\})? {1,9}(\S{1,40})(?: {1,9}-?\d{1,20})?"
)
_LABEL = re.compile(r'[{,]([A-Za-z_]\w{0,100})="((?:[^"\\]|\\.){0,4000})"')


# Larger numbers are no counts, times or shares of any server.
_MOST = 1e15


class Sample(NamedTuple):
    """One number, and the labels that tell it from others of its name."""

    labels: Mapping[str, str]
    value: float


def read_samples(lines: Iterable[str], wanted: Collection[str]) -> dict[str, list[Sample]]:
    """The samples of these names, by name, in the order of the text.

    Lines of other names, comments, and lines that are no samples are left out; so are numbers that
    are not finite, or beyond all measure.
    """
    found: dict[str, list[Sample]] = {}
    for line in lines:
        # Most lines are of other names: those are not taken to pieces.
        name = line.partition("{")[0].partition(" ")[0]
        if name not in wanted or (match := _SAMPLE.fullmatch(line.strip())) is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if abs(value) <= _MOST:  # not infinite, and no NaN
            labels = dict(_LABEL.findall(match[2] or ""))
            found.setdefault(name, []).append(Sample(labels, value))
    return found
