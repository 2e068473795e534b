"""Prefixes that are kept for a time after their requests have ended, as a policy wants it.

A user's policy may say for how long the KV of a finished request must not be evicted, for example
because the answer calls a tool and the conversation goes on in a moment (docs/how-to/policies.md).
SGLang 0.5.23 has no such rule. A kept prefix is locked, as that of a running request is. It is let
go

* when its time is over; but not while a request of its session waits,
* when a request of its session is admitted that begins with it,
* when nothing runs, and what waits, or the last running request, would not fit beside it. Then the
  one that would be kept longest goes first.

When one is let go, or a request of its session arrives, the next decision makes a pass, however
full the batch was (rule 7).
"""

from collections.abc import Iterable

from sim.engine.scheduler import NEVER_AGES_NS
from sim.sglang.cache.tree.prefix_cache import PathLock, PrefixCache
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.policies.policy import Keeper
from sim.sglang.request import SglangRequest


class _Kept:
    """A prefix that ends at a node, is locked, and is kept until a time."""

    def __init__(self, session: str, end: RadixNode, lock: PathLock, until_ns: int) -> None:
        self.session = session
        self.end = end
        self.lock = lock
        self.until_ns = until_ns


class KeptPrefixes:
    """The kept prefixes of a server.

    Attributes:
        next_ns: when the next of them is to be let go because its time is over.
    """

    def __init__(self, cache: PrefixCache, keeper: Keeper) -> None:
        self._cache = cache
        self._keeper = keeper
        self._kept: list[_Kept] = []
        self._is_overdue = False
        self.next_ns = NEVER_AGES_NS

    @property
    def sessions(self) -> frozenset[str]:
        return frozenset(kept.session for kept in self._kept if kept.session)

    def finished(self, request: SglangRequest, now_ns: int) -> None:
        """A request has finished, and its tokens are in the cache: ask whether they are kept."""
        end = request.kv.found
        time_ns = self._keeper.keep_ns(request, now_ns)
        if not time_ns or end is None or end.parent is None:
            return
        lock = self._cache.lock_with_parts(end)
        until_ns = min(now_ns + time_ns, NEVER_AGES_NS)
        self._kept.append(_Kept(request.spec.session, end, lock, until_ns))
        self.next_ns = min(self.next_ns, until_ns)

    def admitted(self, request: SglangRequest) -> None:
        """A request was admitted, and locks its own prefix."""
        session = request.spec.session
        if not session or session not in self.sessions:
            return
        path: set[int] = set()
        node = request.kv.locked
        while node is not None:
            path.add(id(node))
            node = node.parent
        self._let_go([k for k in self._kept if k.session == session and id(k.end) in path])

    def expire(self, now_ns: int, waiting: Iterable[SglangRequest]) -> bool:
        """Let go of those whose time is over; returns whether there were any."""
        if now_ns < self.next_ns and not self._is_overdue:
            return False
        sessions = {request.spec.session for request in waiting if request.spec.session}
        over = [kept for kept in self._kept if kept.until_ns <= now_ns]
        due = [kept for kept in over if kept.session not in sessions]
        self._is_overdue = len(due) < len(over)
        self._let_go(due)
        self.next_ns = min(
            [kept.until_ns for kept in self._kept if kept.until_ns > now_ns],
            default=NEVER_AGES_NS,
        )
        return bool(due)

    def make_room(self) -> bool:
        """Let go of the prefix that would be kept longest; False: there is none."""
        if not self._kept:
            return False
        self._let_go([max(self._kept, key=lambda kept: kept.until_ns)])
        return True

    def _let_go(self, gone: list[_Kept]) -> None:
        if gone:
            self._kept = [kept for kept in self._kept if kept not in gone]
            for kept in gone:
                self._cache.unlock_with_parts(kept.lock)
