"""Where scrapes come from: a server's `/metrics`, asked now and then.

The server is asked `--every` seconds, but never so often that it spends more than a tenth of its
time on answers, and for nothing but this page.
"""

import http.client
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from sim.core.errors import InputError
from sim.families import known_metrics
from sim.server_metrics.scrape import Scrape, read_scrape

_PATH = "/metrics"
_TIMEOUT_S = 10.0
_MAX_BYTES = 1 << 25
# The server has this many times as long to itself as an answer took.
_REST = 10
# An answer is late if it took this long, and this many times as long as the last ones usually.
_LATE_S, _LATE_TIMES = 0.5, 10
_FEWEST_ANSWERS, _MOST_ANSWERS = 5, 30


class Away(NamedTuple):
    """The server could not be asked, and why."""

    reason: str


class Late(NamedTuple):
    """The scrape that follows came late: how long the server took, and how long it usually does."""

    took_s: float
    usual_s: float


class Clock(NamedTuple):
    """Time, which tests replace: nanoseconds since 1970, seconds that only rise, and sleep."""

    now_ns: Callable[[], int] = time.time_ns
    seconds: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def metrics_url(url: str) -> str:
    """The address of a server's metrics: the server's own, or that of the page itself.

    Raises:
        InputError: it is no address of a web server.
    """
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web or not url.isprintable() or " " in url:
        raise InputError(f"--url {url}: must be an address such as http://localhost:8000")
    base = url.partition("?")[0].partition("#")[0].rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


def fetch(url: str) -> str | Away:
    """The text of the page, or why there is none. It waits ten seconds at most."""
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - `metrics_url` checked it
            content: bytes = answer.read(_MAX_BYTES + 1)
    except HTTPError as error:
        return Away(f"answers {error.code} {error.reason}")
    except (OSError, URLError, http.client.HTTPException, ValueError) as error:
        return Away(str(getattr(error, "reason", "") or error) or type(error).__name__)
    if len(content) > _MAX_BYTES:
        return Away(f"answers more than {_MAX_BYTES >> 20} MiB")
    return content.decode(errors="replace")


def scrapes(
    url: str,
    every_s: float,
    *,
    fetch: Callable[[str], str | Away] = fetch,
    clock: Clock | None = None,
) -> Iterator[Scrape | Away | Late]:
    """Ask a server again and again, without an end.

    Raises:
        InputError: the first answer is there, but no metrics of a known engine are in it.
    """
    clock = clock or Clock()
    families = known_metrics()
    has_answered = False
    answered_s: deque[float] = deque(maxlen=_MOST_ANSWERS)
    while True:
        began_s = clock.seconds()
        answer = fetch(url)
        took_s = clock.seconds() - began_s
        if isinstance(answer, Away):
            yield answer
        else:
            scrape = read_scrape(answer, clock.now_ns() // 1_000, families)
            if scrape is None and not has_answered:
                raise InputError(f"--url {url}: has no metric of a known engine")
            has_answered = True
            usual_s = median(answered_s) if len(answered_s) >= _FEWEST_ANSWERS else math.inf
            if took_s >= max(_LATE_S, _LATE_TIMES * usual_s):
                yield Late(took_s, usual_s)
            answered_s.append(took_s)
            yield Away("has no metric of a known engine now") if scrape is None else scrape
        clock.sleep(max(every_s - took_s, _REST * took_s, 0.0))
