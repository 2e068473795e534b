"""The account of a run: at its end every request that arrived has ended, and nothing is kept.

Every driver has one, in simulated time and in real time (INV-1 and INV-4 of
docs/explanation/invariants.md).
"""

from collections import Counter
from collections.abc import Iterable

from sim.core.errors import AccountError
from sim.core.request import Status
from sim.engine.core import EngineCore

_MOST_NAMED = 3


class Account:
    """Counts the requests of a run, from their arrival to their end."""

    def __init__(self) -> None:
        self._num_arrived = 0
        # Most requests finish: they are counted apart, since a status is slow to look up.
        self._num_finished = 0
        self._ended: Counter[Status] = Counter()
        self._live: dict[str, None] = {}

    def arrived(self, rid: str) -> None:
        """A request has come to the servers."""
        self._num_arrived += 1
        self._live[rid] = None

    def over(self, rid: str, status: Status) -> None:
        """A request has finished, or was rejected or aborted, as `status` says.

        Raises:
            AccountError: it has not arrived, or has ended before.
        """
        if rid not in self._live:
            raise AccountError(f"{rid} ended without an arrival, or a second time")
        del self._live[rid]
        if status is Status.FINISHED:
            self._num_finished += 1
        else:
            self._ended[status] += 1

    def close(self, engines: Iterable[EngineCore], num_expected: int | None = None) -> None:
        """The run is over.

        Args:
            engines: of all servers.
            num_expected: requests of the workload; None: not known.

        Raises:
            AccountError: requests have not arrived or not ended, or an engine keeps something.
        """
        unsent = 0 if num_expected is None else num_expected - self._num_arrived
        if self._live or unsent:
            ended = ", ".join(
                f"{self._ended[status]:,} {status.value}"
                for status in (Status.REJECTED, Status.ABORTED)
            )
            raise AccountError(
                f"{self._num_arrived:,} requests arrived ({unsent:,} did not):"
                f" {self._num_finished:,} {Status.FINISHED.value}, {ended},"
                f" {len(self._live):,} without an end{_named(self._live)}"
            )
        for number, engine in enumerate(engines):
            check_nothing_kept(engine, f"server {number}")


def check_nothing_kept(engine: EngineCore, name: str) -> None:
    """Verify that an engine whose requests have all ended keeps none of them, and none of their KV.

    Raises:
        AccountError: it does; the message begins with `name`.
    """
    if what := kept_by(engine):
        raise AccountError(f"{name} still {what}")


def kept_by(engine: EngineCore) -> str:
    """What an engine keeps of requests that have all ended; empty: nothing.

    It may keep what it would let go of if it looked: a server of vLLM 0.19 that has nothing else to
    do looks for no ends of transfers.
    """
    unseen = engine.role.unseen
    kept = [rid for rid in engine.requests if rid not in unseen]
    if kept or engine.in_flight:
        num_steps = len(engine.in_flight)
        return f"has {len(kept):,} requests{_named(kept)}, {num_steps} steps"
    kv = engine.kv
    num_held = kv.pool_tokens - kv.free_tokens - kv.evictable_tokens
    if num_held and not unseen:
        return f"holds {num_held:,} tokens of KV for requests that ended"
    return ""


def _named(rids: Iterable[str]) -> str:
    names = list(rids)
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f" ({', '.join(names[:_MOST_NAMED])}{more})" if names else ""
