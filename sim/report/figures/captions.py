"""The words around a figure: its title, its caption, the name of its files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.metrics.metric_name import MetricName
from sim.report.figures.metric_axis import MetricAxis
from sim.report.key_text import where_text
from sim.sweep.results import SweepResults


def seeds_caption(data: SweepResults, mark: str = "", axes: Iterable[MetricAxis] = ()) -> str:
    """What a point is.

    Args:
        data: the sweep.
        mark: what shows intervals, if anything does.
        axes: what they are shown on.
    """
    if data.num_seeds < 2:
        return ""
    text = f"Means of {data.num_seeds} seeds"
    if not data.has_intervals or not mark:
        return f"{text}."
    cut = ", cut off at the frame" if any(axis.is_cut for axis in axes) else ""
    return f"{text}; {mark} are 95 % confidence intervals{cut}."


def in_title(text: str) -> str:
    """With a capital, unless it begins with a name like p99."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def titled(panels: Sequence[Sequence[MetricName]]) -> str:
    """What panels show, in words: `p99 TTFT and mean TTFT of hot and cold requests`."""
    words = []
    for metrics in panels:
        groups = [metric.group_label for metric in metrics]
        of = f" of {joined(groups)}" + ("" if "all requests" in groups else " requests")
        words.append(f"{metrics[0].label}{of}" if len(metrics) > 1 else metrics[0].long_label)
    return joined(words)


def caption_of(given: str | None, sentences: Sequence[str], where: str) -> str:
    """The user's caption, or the sentences; and what the plot is narrowed down to."""
    shown = [given] if given else [sentence for sentence in sentences if sentence]
    return " ".join([*shown, *([f"Only settings with {where}."] if where else [])])


def where_of(wanted: Mapping[str, Any] | None, keys: Sequence[str]) -> str:
    return where_text(wanted, keys) if wanted else ""


def slug_of(*words: str) -> str:
    """A name for files, of letters, digits and dashes."""
    text = "-".join(words).lower()
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return "-".join(filter(None, kept.split("-")))[:60].rstrip("-")


def joined(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
