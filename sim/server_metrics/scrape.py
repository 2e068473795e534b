"""What the text of `/metrics` says, in the same words for all engines; files of many scrapes.

The text is in Prometheus' format, as far as servers of language models write it. In a file of many
scrapes of one server, each follows a line that says when it was made:

    # scraped 1795772084625364

is a time in microseconds since 1970.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.server_log.text_lines import Lines

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


GAUGES = ("running", "waiting", "kv_usage", "pool_tokens")
COUNTERS = (
    "prompt_tokens", "queried_tokens", "cached_tokens", "generation_tokens", "requests",
    "preemptions",
)  # fmt: skip
HISTOGRAMS = (
    "ttft_s", "itl_s", "e2e_s", "queue_s", "prefill_s", "prompt_lengths", "output_lengths",
)  # fmt: skip
# Without these a server's traffic is not known.
NEEDED = ("running", "waiting", "requests", "ttft_s", "itl_s")
# What all ranks of one engine say, only the first says here.
_ONE_RANK = ("tp_rank", "pp_rank")
# Labels that tell parts of a server apart, and nothing about its settings.
_PARTS = frozenset({"engine", "index"})


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often values were at most each bound, and their sum; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def num(self) -> float:
        return self.counts[-1]

    def since(self, before: "Histogram | None") -> "Histogram":
        if before is None or before.bounds != self.bounds:
            return self
        pairs = zip(self.counts, before.counts, strict=True)
        return Histogram(
            self.bounds, tuple(now - then for now, then in pairs), self.total - before.total
        )

    def above(self, limit: float) -> tuple[float, float]:
        """How many values were above the next bound from `limit` on, and about their sum.

        Each counts as the geometric mean of its bucket's bounds.
        """
        num = total = at_most = 0.0
        for low, high, count in zip((0.0, *self.bounds), self.bounds, self.counts, strict=False):
            if low >= limit:
                num += count - at_most
                total += (count - at_most) * math.sqrt(low * min(high, 2 * low))
            at_most = count
        return num, total


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a server said at one time.

    Attributes:
        at_us: when, in microseconds since 1970.
        family: name of the engine's family.
        values: `GAUGES` and `COUNTERS`, as far as the server has them: sums over its ranks, of
            `kv_usage` the mean.
        histograms: `HISTOGRAMS`, as far as the server has them.
        info: its settings as far as the metrics have them.
    """

    at_us: int
    family: str
    values: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    info: Mapping[str, str]

    @property
    def missing(self) -> list[str]:
        """Names of `NEEDED` that the server does not have."""
        return [key for key in NEEDED if key not in self.values and key not in self.histograms]

    def is_restarted(self, before: "Scrape") -> bool:
        """Whether the server was started anew since `before`: a counter fell."""
        fell = any(
            self.values.get(key, 0.0) < before.values.get(key, 0.0) for key in COUNTERS
        ) or any(
            one.num < before.histograms[key].num
            for key, one in self.histograms.items()
            if key in before.histograms
        )
        return fell or self.family != before.family


@dataclass(frozen=True)
class MetricNames:
    """The names under which servers of a family have their figures.

    Attributes:
        names: by the names used here, the engine's, of which the first counts that a server has.
            A counter is written without `_total`.
        info: a metric whose labels are the server's settings; empty: there is none.
        pool: those labels whose product is the KV pool in tokens.
    """

    family: str
    names: Mapping[str, Sequence[str]]
    info: str = ""
    pool: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        family: str,
        served: Mapping[str, str],
        further: Mapping[str, str],
        info: str = "",
        pool: Sequence[str] = (),
    ) -> "MetricNames":
        """Those that simulated servers show, and those that a real server may have instead."""
        keys = (*GAUGES, *COUNTERS, *HISTOGRAMS)
        tables = (further, served)
        names = {key: [table[key] for table in tables if key in table] for key in keys}
        return cls(family, names, info, pool)

    @cached_property
    def wanted(self) -> frozenset[str]:
        """All names that samples may have."""
        kinds = ((COUNTERS, ("_total", "")), (GAUGES, ("",)),
                 (HISTOGRAMS, ("_bucket", "_sum")))  # fmt: skip
        found = {
            f"{name}{ending}"
            for keys, endings in kinds
            for key in keys
            for name in self.names.get(key, ())
            for ending in endings
        }
        return frozenset({*found, self.info})

    def read(self, at_us: int, samples: Mapping[str, list[Sample]]) -> Scrape | None:
        """The scrape; None: no metric is of this family."""
        values, histograms = {}, {}
        for key in (*GAUGES, *COUNTERS):
            endings = ("_total", "") if key in COUNTERS else ("",)
            named = (f"{name}{end}" for name in self.names.get(key, ()) for end in endings)
            if rows := next((_of_server(samples[n]) for n in named if n in samples), None):
                values[key] = sum(row.value for row in rows)
                if key == "kv_usage":
                    values[key] /= len(rows)
        for key in HISTOGRAMS:
            names = self.names.get(key, ())
            found = (_histogram(samples, name) for name in names if f"{name}_bucket" in samples)
            if (one := next(found, None)) is not None:
                histograms[key] = one
        if not values and not histograms:
            return None
        info = {
            label: text
            for row in samples.get(self.info, ())
            for label, text in row.labels.items()
            if label not in _PARTS
        }
        sizes = [info.get(label, "") for label in self.pool]
        if sizes and all(size.isascii() and size.isdigit() for size in sizes):
            values["pool_tokens"] = float(math.prod(int(size[:12]) for size in sizes))
        return Scrape(at_us, self.family, values, histograms, info)


def _of_server(rows: Sequence[Sample]) -> list[Sample]:
    """Without what further ranks say again, and without parts by priority beside their sum."""
    return [
        row
        for row in rows
        if all(row.labels.get(rank, "0") == "0" for rank in _ONE_RANK)
        and not row.labels.get("priority")
    ]


def _histogram(samples: Mapping[str, list[Sample]], name: str) -> Histogram | None:
    counts: dict[float, float] = {}
    for row in _of_server(samples[f"{name}_bucket"]):
        try:
            bound = float(row.labels.get("le", ""))
        except ValueError:
            return None
        counts[bound] = counts.get(bound, 0.0) + row.value
    bounds = sorted(counts)
    if not bounds or bounds[0] < 0 or bounds[-1] != float("inf"):
        return None
    total = sum(row.value for row in _of_server(samples.get(f"{name}_sum", ())))
    return Histogram(tuple(bounds), tuple(counts[bound] for bound in bounds), total)


def read_scrape(text: str, at_us: int, families: Iterable[MetricNames]) -> Scrape | None:
    """The scrape of a server of one of these families; None: it is of none."""
    lines = text.splitlines()
    for names in families:
        scrape = names.read(at_us, read_samples(lines, names.wanted))
        if scrape is not None:
            return scrape
    return None


MARK = "# scraped"
# A scrape of a large server has a few thousand lines.
_MAX_LINES = 200_000


def read_dump(path: Path, families: Sequence[MetricNames]) -> Iterator[Scrape]:
    """The scrapes of a file, plain or gzipped, in their order. One is in memory at a time.

    Raises InputError: the file cannot be read, has no mark, or its times fall; or a scrape is too
    long or of no known server.
    """
    rows: list[str] = []
    at_us: int | None = None
    lines = Lines([path])
    for content in lines:
        line = content.decode(errors="replace")
        if (mark_us := scraped_us(line)) is None:
            if at_us is None and line.strip() and not line.startswith("#"):
                raise InputError(
                    f"{path}:{lines.number}: comes before the first line `{MARK} TIME`"
                )
            rows.append(line)
            if len(rows) > _MAX_LINES:
                reason = f"is the {_MAX_LINES + 1:,}th line of a scrape"
                raise InputError(f"{path}:{lines.number}: {reason}")
            continue
        if at_us is not None:
            yield _read(path, rows, at_us, families)
            if mark_us <= at_us:
                raise InputError(f"{path}:{lines.number}: time does not rise")
        at_us, rows = mark_us, []
    if at_us is None:
        raise InputError(f"{path}: has no line `{MARK} TIME`, a time in microseconds since 1970")
    # The last one may be cut off.
    if rows:
        yield _read(path, rows, at_us, families)


def _read(path: Path, rows: list[str], at_us: int, families: Sequence[MetricNames]) -> Scrape:
    scrape = read_scrape("\n".join(rows), at_us, families)
    if scrape is None:
        raise InputError(f"{path}: the scrape at {at_us} has no metric of a known engine")
    return scrape
