"""Traffic of a few streams, each with requests that are alike: what an attack searches over."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.core.units import NS_PER_S
from sim.workload.traces.servetwin import servetwin_line

NUM_STREAMS = 3
# Seeds of the tokens that the requests of a stream share, one for each stream; and the distance
# between the seeds of the streams' own tokens, of which each request has one.
_FIRST_SHARED, _SEEDS_OF_STREAM = 1, 1_000


class TraceLimits(NamedTuple):
    """The bounds of a search.

    Attributes:
        unit_s: what times are multiples of: as long as the prompt of a usual request takes alone.
        most_prompt, most_output: tokens of the longest prompt and the longest answer.
        most_requests: requests of the largest stream.
        has_priorities: requests may have different priorities.
    """

    unit_s: float
    most_prompt: int
    most_output: int
    most_requests: int
    has_priorities: bool


class RequestStream(NamedTuple):
    """Requests that are alike, and come one after another.

    Attributes:
        begin, gap: when the first comes, and how long after it the next; in units of `TraceLimits`.
        prompt_tokens: of each request, of which the first `shared_tokens` are equal.
    """

    num_requests: int
    begin: float
    gap: float
    prompt_tokens: int
    shared_tokens: int
    output_tokens: int
    priority: int


class Row(NamedTuple):
    """A request of the trace: when it comes, and the other fields of its line."""

    arrival_ns: int
    fields: Mapping[str, Any]

    @property
    def rid(self) -> str:
        return str(self.fields["rid"])


def rows_of(streams: Sequence[RequestStream], limits: TraceLimits) -> list[Row]:
    """The requests of all streams, in order of time; times are whole microseconds."""
    rows = [row for place, each in enumerate(streams) for row in _rows(place, each, limits)]
    return sorted(rows, key=lambda row: (row.arrival_ns, row.rid))


def _rows(place: int, stream: RequestStream, limits: TraceLimits) -> Iterator[Row]:
    name = "abc"[place]
    own = stream.prompt_tokens - stream.shared_tokens
    shared = [[_FIRST_SHARED + place, stream.shared_tokens]] if stream.shared_tokens else []
    for number in range(stream.num_requests):
        arrival_s = (stream.begin + number * stream.gap) * limits.unit_s
        seed = _SEEDS_OF_STREAM * (1 + place) + number
        fields: dict[str, Any] = {
            "rid": f"{name}{number}",
            "segments": [*shared, [seed, own]],
            "output_len": stream.output_tokens,
            "tenant": name,
            "ignore_eos": True,
        }
        if limits.has_priorities:
            fields["priority"] = stream.priority
        yield Row(round(arrival_s * 1e6) * (NS_PER_S // 1_000_000), fields)


def trace_text(rows: Sequence[Row]) -> str:
    """A file of format servetwin."""
    return "".join(servetwin_line(row.arrival_ns, row.fields) for row in rows)
