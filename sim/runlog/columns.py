"""A run log in memory: numpy columns, small enough for a million requests, and its parts joined."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from sim.core.arrays import Bools, Int64, Narrow, NarrowColumn
from sim.runlog.servers import HandoverColumns, LoggedPool, logged_pools

NOT_YET_NS = -1


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """One row for each request, in order of submission. Arrays have shape [num_requests].

    Times are ns since the start of the run; `NOT_YET_NS` means that the event never happened.
    `scheduled_ns` is when the first batch with the request was decided. `cached_tokens` is the
    prefix that the cache held then, and `host_cached_tokens` the part of it that was loaded from
    host memory. `replica` is the replica it went to, or the rank if replicas have ranks
    (`RunLog.place`). `status` has values of `core.request.Status`. `aged` is 1 if the fairness rule
    ever moved the request to the front because of its long wait. `verify_steps` verified draft
    tokens, `drafted_tokens` of which `accepted_tokens` were accepted. `warm_up` is 1 if no metric
    counts the request.
    """

    rid: list[str]
    tenant: list[str]
    status: list[str]
    arrival_ns: Int64
    scheduled_ns: Int64
    first_token_ns: Int64
    finish_ns: Int64
    prompt_tokens: Int64
    cached_tokens: Int64
    host_cached_tokens: Int64
    output_tokens: Int64
    priority: Int64
    retractions: Int64
    preemptions: Int64
    aged: Int64
    verify_steps: Int64
    drafted_tokens: Int64
    accepted_tokens: Int64
    replica: Int64
    warm_up: Int64

    def rows(self, mask: Bools) -> "RequestColumns":
        """The requests where `mask`, of shape [num_requests], is true."""
        return RequestColumns(**_rows(self, mask))


def _widened(columns: object, name: str) -> Any:
    """An attribute of `columns`; an array if it is a narrow column."""
    value = object.__getattribute__(columns, name)
    return value.widened() if isinstance(value, NarrowColumn) else value


def _stored(columns: "StepColumns | TokenGaps") -> Iterator[NarrowColumn]:
    for column in fields(columns):
        value = object.__getattribute__(columns, column.name)
        yield value if isinstance(value, NarrowColumn) else NarrowColumn.of(value)


@dataclass(frozen=True, slots=True)
class StepColumns:
    """One row for each *run*: a step, or several consecutive decode steps of the same rows.

    Arrays have shape [num_runs], in order of launch within a replica. If replicas have ranks,
    `replica` numbers the ranks (`RunLog.place`), and a rank has rows only of steps in which it had
    work; their times are those of all ranks. `mode` has ForwardMode values. Numbers of waiting and
    running requests and of pool tokens are those of the run's last step: `free_tokens +
    evictable_tokens + used_tokens` is the pool, and `host_used_tokens` are in host memory.
    `num_loaded_tokens` were loaded from host memory by the run. `device_ns` and `host_ns` are sums
    over all steps of the run, and `used_token_steps` is the sum of their used tokens.

    A column may be stored as a `NarrowColumn`, because there are millions of rows; to read it
    makes an array.
    """

    replica: Int64
    num_steps: Int64
    t_start_ns: Int64
    t_end_ns: Int64
    mode: Int64
    num_prefill_tokens: Int64
    num_cached_tokens: Int64
    num_loaded_tokens: Int64
    num_prefill_rows: Int64
    num_decode_rows: Int64
    num_context_tokens: Int64
    free_tokens: Int64
    evictable_tokens: Int64
    used_tokens: Int64
    host_used_tokens: Int64
    used_token_steps: Int64
    running: Int64
    queue: Int64
    device_ns: Int64
    host_ns: Int64

    if not TYPE_CHECKING:
        __getattribute__ = _widened

    @classmethod
    def narrow(cls, columns: Iterable[NarrowColumn]) -> "StepColumns":
        """The rows of these columns, in the order of the fields."""
        return cls(*cast("Iterable[Int64]", columns))

    def stored(self) -> Iterator[NarrowColumn]:
        """The columns as they are stored, or would be."""
        return _stored(self)

    def rows(self, mask: Bools) -> "StepColumns":
        """The runs where `mask`, of shape [num_runs], is true."""
        return StepColumns(**_rows(self, mask))


def _rows(columns: RequestColumns | StepColumns, mask: Bools) -> dict[str, Any]:
    numbers = np.flatnonzero(mask).tolist()
    picked: dict[str, Any] = {}
    for column in fields(columns):
        values = getattr(columns, column.name)
        is_list = isinstance(values, list)
        picked[column.name] = [values[row] for row in numbers] if is_list else values[mask]
    return picked


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """Inter-token latencies: the gap `gap_ns[i]` occurred `count[i]` times.

    Those of warm-up requests are not among them. As in `StepColumns`, columns may be stored narrow.
    """

    gap_ns: Int64
    count: Int64

    if not TYPE_CHECKING:
        __getattribute__ = _widened

    @classmethod
    def narrow(cls, gap_ns: NarrowColumn, count: NarrowColumn) -> "TokenGaps":
        return cls(*cast("Iterable[Int64]", (gap_ns, count)))

    def compact(self) -> tuple[Narrow, Narrow]:
        """Both columns as arrays of types that are as small as can be."""
        gap_ns, count = _stored(self)
        return gap_ns.compact(), count.compact()


# The token gaps of a server or rank, how often each occurred, and when each ended, if that is kept.
ServerGaps = tuple[NarrowColumn, NarrowColumn, NarrowColumn | None]


def joined_gaps(servers: Sequence[ServerGaps]) -> tuple[TokenGaps, Int64 | None]:
    """The token gaps of all servers, server by server; and when they ended, if that is kept."""
    gap_ns, count, at_ns = zip(*servers, strict=True) if servers else ((), (), ())
    kept = [times for times in at_ns if times is not None]
    gaps = TokenGaps.narrow(NarrowColumn.joined(gap_ns), NarrowColumn.joined(count))
    return gaps, NarrowColumn.joined(kept).widened() if kept else None


class FurtherTimes(NamedTuple):
    """When the device ran the steps after the first one of each row of `StepColumns`.

    Differences instead of times: they take a few bytes. Shape [num_further_steps], row by row.

    Attributes:
        waited_ns: from the end of the step before until the step began.
    """

    waited_ns: NarrowColumn
    device_ns: NarrowColumn


@dataclass(frozen=True, slots=True)
class RunLog:
    """A whole run. `meta` has plain JSON values: scenario name, hash, seed, versions, pool sizes.

    `meta["replicas"]` is the number of servers and `meta["max_total_tokens"]` the KV tokens of
    each. If replicas have several ranks, `meta["ranks"]` is their number, and the pool is that of
    one rank. If evicted KV goes to host memory, `meta["host_cache_tokens"]` is that memory's size.
    Of pipelines, `meta["micro_batches"]` says how many steps of a server may overlap.

    With server pools, `meta["pools"]` has all this for each of them, replica numbers run over all
    pools, and each rank counts as a replica (`LoggedPool`). `handovers` says how requests got from
    prefill to decode servers; None: every server computes whole requests.

    If metrics are about a part of the run, `window_ns` has its begin and its end, which is not part
    of it; then `gap_at_ns` says when the gaps of `token_gaps` ended.

    With server pools, `further` has the time of each step that fast-forward passed.

    `predicted_tokens`: how many tokens of each request its router believed to be cached where it
    sent it; shape [num_requests]. None: the router believes nothing.
    """

    requests: RequestColumns
    steps: StepColumns
    token_gaps: TokenGaps
    meta: Mapping[str, object] = field(default_factory=dict)
    gap_at_ns: Int64 | None = None
    window_ns: tuple[int, int] | None = None
    handovers: HandoverColumns | None = None
    further: FurtherTimes | None = None
    predicted_tokens: Int64 | None = None

    @property
    def pools(self) -> tuple[LoggedPool, ...]:
        """The server pools; none if all servers are alike."""
        return logged_pools(self.meta)

    def pool_of(self, server: int) -> LoggedPool | None:
        """The pool that a value of column `replica` is in; None: all servers are alike."""
        return next((pool for pool in self.pools if pool.has(server)), None)

    @property
    def num_ranks(self) -> int:
        """Ranks of each replica that step together."""
        ranks = self.meta.get("ranks", 1)
        return ranks if isinstance(ranks, int) else 1

    def micro_batches(self, server: int) -> int:
        """How many steps of this server may overlap."""
        pool = self.pool_of(server)
        number = self.meta.get("micro_batches", 1) if pool is None else pool.micro_batches
        return number if isinstance(number, int) else 1

    def place(self, number: int) -> tuple[int, int]:
        """The replica and the rank that a value of column `replica` stands for."""
        return divmod(number, self.num_ranks)

    @property
    def has_host_tier(self) -> bool:
        return self._some_has("host_cache_tokens")

    @property
    def has_drafts(self) -> bool:
        return self._some_has("num_speculative_tokens")

    def _some_has(self, key: str) -> bool:
        return key in self.meta or any(key in pool.meta for pool in self.pools)

    def of_requests(self, mask: Bools) -> "RunLog":
        """The log with the requests where `mask`, of shape [num_requests], is true."""
        handovers = None if self.handovers is None else self.handovers.rows(mask)
        predicted = None if self.predicted_tokens is None else self.predicted_tokens[mask]
        requests = self.requests.rows(mask)
        return replace(self, requests=requests, handovers=handovers, predicted_tokens=predicted)

    def of_steps(self, mask: Bools) -> "RunLog":
        """The log with the rows of steps where `mask`, of shape [num_runs], is true."""
        return replace(self, steps=self.steps.rows(mask), further=None)

    def measured(self) -> "RunLog":
        """The log without what no metric counts; the log itself if metrics count all of it.

        It has no warm-up requests, and no steps that started before the first other request
        arrived. With a window it has the requests that arrived in it, the token gaps that ended in
        it, and all steps: those that fast-forward passed at once have no times of their own.
        """
        measured = self.requests.warm_up == 0
        if self.window_ns is not None:
            return self._within(*self.window_ns, measured)
        if measured.all():
            return self
        log = self.of_requests(measured)
        arrival_ns = log.requests.arrival_ns
        begin_ns = arrival_ns.min() if len(arrival_ns) else np.iinfo(np.int64).max
        return log.of_steps(self.steps.t_start_ns >= begin_ns)

    def _within(self, begin_ns: int, end_ns: int, measured: Bools) -> "RunLog":
        def inside(at_ns: Int64) -> Bools:
            return (at_ns >= begin_ns) & (at_ns < end_ns)

        gaps, gap_at_ns = self.token_gaps, self.gap_at_ns
        if gap_at_ns is not None:
            kept = inside(gap_at_ns)
            gaps = TokenGaps(gaps.gap_ns[kept], gaps.count[kept])
            gap_at_ns = gap_at_ns[kept]
        log = self.of_requests(measured & inside(self.requests.arrival_ns))
        return replace(log, token_gaps=gaps, gap_at_ns=gap_at_ns)


class LogPart(NamedTuple):
    """The log of some of the replicas, and what puts its rows between those of the others.

    It is small, because it goes from process to process, and `joined` takes its columns out, so
    that none is in memory twice.

    Attributes:
        requests, steps: columns by name; texts are lists.
        gaps: the token gaps by number of the server, or rank.
        order: columns by name: `submitted_ns` is when each request reached its server, `number`
            counts the requests of all parts in order of arrival, and `ended_ns` is when each row
            of steps was processed.
        num_steps: how many steps were simulated.
    """

    requests: dict[str, NarrowColumn | list[str]]
    steps: dict[str, NarrowColumn]
    gaps: dict[int, ServerGaps]
    order: dict[str, NarrowColumn]
    num_steps: int

    @classmethod
    def of(cls, log: RunLog, gaps: dict[int, ServerGaps], **order: Int64) -> "LogPart":
        """The part with the requests and steps of a log, and these gaps; see the attributes."""
        requests = {
            field.name: _in_little_memory(getattr(log.requests, field.name))
            for field in fields(RequestColumns)
        }
        names = [field.name for field in fields(StepColumns)]
        num_steps = log.meta["simulated_steps"]
        return cls(
            requests,
            dict(zip(names, log.steps.stored(), strict=True)),
            gaps,
            {name: NarrowColumn.of(column) for name, column in order.items()},
            num_steps if isinstance(num_steps, int) else 0,
        )


def _in_little_memory(values: Any) -> NarrowColumn | list[str]:
    return values if isinstance(values, list) else NarrowColumn.of(values)


def joined(parts: Sequence[LogPart], num_ranks: int, meta: Mapping[str, object]) -> RunLog:
    """The log that one process would have built. The parts are empty afterwards.

    One process handles what happens at the same time in a fixed order: requests in order of
    arrival, results of steps in order of replicas, and of the ranks within a replica. The parts
    together have every replica once; `meta` has all but `simulated_steps`.
    """

    def ordering(name: str) -> Int64:
        return _joined([part.order.pop(name) for part in parts])

    submitted = np.lexsort((ordering("number"), ordering("submitted_ns")))
    replica = _joined([part.steps["replica"] for part in parts]) // num_ranks
    stepped = np.lexsort((replica, ordering("ended_ns")))
    del replica
    requests: dict[str, Any] = {
        name: _request_column([part.requests.pop(name) for part in parts], submitted)
        for name in list(parts[0].requests)
    }
    steps = [
        NarrowColumn.of(_joined([part.steps.pop(name) for part in parts])[stepped])
        for name in list(parts[0].steps)
    ]
    # Server by server.
    gaps_of = {server: gaps for part in parts for server, gaps in part.gaps.items()}
    gaps, gap_at_ns = joined_gaps([gaps_of[server] for server in sorted(gaps_of)])
    return RunLog(
        requests=RequestColumns(**requests),
        steps=StepColumns.narrow(steps),
        token_gaps=gaps,
        gap_at_ns=gap_at_ns,
        meta={**meta, "simulated_steps": sum(part.num_steps for part in parts)},
    )


def _joined(columns: Sequence[NarrowColumn]) -> Int64:
    return NarrowColumn.joined(columns).widened()


def _request_column(columns: Sequence[Any], order: Int64) -> Int64 | list[str]:
    if isinstance(columns[0], list):
        texts = [text for column in columns for text in column]
        return [texts[place] for place in order.tolist()]
    rows: Int64 = _joined(columns)[order]
    return rows
