"""A file with many scrapes of one server, each after a line that says when it was made.

    # scraped 1795772084625364

is a time in microseconds since 1970.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sim.core.errors import InputError
from sim.server_log.text_lines import Lines
from sim.server_metrics.exposition import scraped_us
from sim.server_metrics.scrape import MetricNames, Scrape, read_scrape

MARK = "# scraped"
# A scrape of a large server has a few thousand lines.
_MAX_LINES = 200_000


def read_dump(path: Path, families: Sequence[MetricNames]) -> Iterator[Scrape]:
    """The scrapes of a file, plain or gzipped, in their order. One is in memory at a time.

    Raises:
        InputError: the file cannot be read, has no mark, or its times fall; or a scrape is too long
            or of no known server.
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
