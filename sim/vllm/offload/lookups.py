"""What a server asks its secondary tier: which chunks are there.

The scheduler does not wait for answers. A chunk is asked for once, by the first request that looks
for it; the answer holds until all requests that have looked for the chunk are over. A thread
answers the questions of one decision after another; the chunks of a request are one look-up.

vLLM 0.33.0: `AsyncLookupManager` (v1/kv_offload/tiering/async_lookup.py).
"""

from collections import deque
from collections.abc import Callable, Iterable

from sim.engine.store import Job, Store
from sim.vllm.offload.policies import Access, ChunkKey


class Lookup:
    """What is known of a chunk in the tier.

    Attributes:
        is_found: whether it is there; None: there is no answer yet.
        is_asked: the thread has got the question.
        users: the requests that have looked for it and are not over.
    """

    def __init__(self) -> None:
        self.is_found: bool | None = None
        self.is_asked = False
        self.users: set[Access] = set()


_Asked = list[tuple[ChunkKey, Lookup]]


class Lookups:
    """The look-ups of one server.

    Attributes:
        answers: what the thread has found and the scheduler does not know yet.
        job: the lookup that is under way.
    """

    def __init__(self, store: Store, page_of: Callable[[ChunkKey], int]) -> None:
        """`page_of`: a chunk's name in the store."""
        self.store = store
        self.answers: list[tuple[ChunkKey, Lookup, bool]] = []
        self.job: Job | None = None
        self._page_of = page_of
        self._lookups: dict[ChunkKey, Lookup] = {}
        self._keys_of: dict[Access, set[ChunkKey]] = {}
        # What this decision asks for.
        self._new: list[tuple[ChunkKey, Lookup, Access]] = []
        # For the thread: of each decision, the chunks of each request.
        self._batches: deque[list[_Asked]] = deque()
        self._num_answered = 0
        self._found: list[tuple[ChunkKey, Lookup, bool]] = []

    # ---- the scheduler -------------------------------------------------------------------------

    def look_up(self, key: ChunkKey, access: Access) -> bool | None:
        """Whether a chunk is there; None: there is no answer yet."""
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = Lookup()
            self._new.append((key, lookup, access))
        lookup.users.add(access)
        self._keys_of.setdefault(access, set()).add(key)
        return lookup.is_found

    def ask(self) -> None:
        """A decision is over: the thread gets its questions, but for those nobody needs now."""
        batch: dict[Access, _Asked] = {}
        for key, lookup, access in self._new:
            if self._lookups.get(key) is lookup:
                lookup.is_asked = True
                batch.setdefault(access, []).append((key, lookup))
        self._new = []
        if batch:
            self._batches.append(list(batch.values()))
            self.store.later(0.0, self._start)

    def take_answers(self) -> None:
        """A decision begins: the scheduler learns what the thread has found."""
        answers, self.answers = self.answers, []
        for key, lookup, is_found in answers:
            if not lookup.users:
                del self._lookups[key]
            else:
                lookup.is_found = is_found

    def missing(self, keys: Iterable[ChunkKey]) -> None:
        """Chunks could not be read although they were found: from now on they count as missing."""
        for key in keys:
            lookup = self._lookups.get(key)
            if lookup is not None and lookup.is_found is not None:
                lookup.is_found = False

    def forget(self, access: Access) -> None:
        """A request is over. What the thread has been asked for stays until it answers."""
        for key in self._keys_of.pop(access, ()):
            lookup = self._lookups[key]
            lookup.users.discard(access)
            if not lookup.users and (lookup.is_found is not None or not lookup.is_asked):
                del self._lookups[key]

    # ---- the thread ----------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Some questions have no answer yet that the scheduler knows."""
        return bool(self._new or self._batches or self.answers)

    def _start(self) -> None:
        if self.job is None and self._batches:
            self.job = self.store.look_up(self._answer)

    def _answer(self) -> None:
        batch = self._batches[0]
        for key, lookup in batch[self._num_answered]:
            self._found.append((key, lookup, self.store.has(self._page_of(key))))
        self._num_answered += 1
        self.job = None
        if self._num_answered == len(batch):
            self._batches.popleft()
            self._num_answered = 0
            self.answers += self._found
            self._found = []
        self._start()
