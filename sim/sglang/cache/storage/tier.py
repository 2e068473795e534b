"""Storage below host memory: prompts are fetched from a store while their requests wait.

Follows SGLang 0.5.23 with `--hicache-storage-backend` (docs/explanation/storage.md):
`prefetch_from_storage`, `check_prefetch_progress` and `_drain_storage_control_queues_impl` in
mem_cache/unified_radix_cache.py, and `_prefetch_kvcache` in managers/scheduler.py.
"""

from collections.abc import Sequence

from sim.core.tokens import BlockKeys, TokenSequence
from sim.engine.page_pool import Span
from sim.engine.store import Store
from sim.sglang.cache.host.tree import HostTree, LowerStorage
from sim.sglang.cache.settings import StorageSettings
from sim.sglang.cache.storage.retries import Retries
from sim.sglang.cache.storage.threads import Backup, Fetch, ReadPages, StorageThreads
from sim.sglang.cache.tree.prefix_cache import Pairs
from sim.sglang.cache.tree.radix_cache import path_tokens
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest


class _Wait:
    """How long a request that could be admitted has waited for its fetch."""

    def __init__(self, since_ns: int, timeout_ns: float) -> None:
        self.since_ns = since_ns
        self.timeout_ns = timeout_ns
        self.is_over = False

    def ends_ns(self) -> int:
        """The first nanosecond at which it is over."""
        return self.since_ns + int(self.timeout_ns) + 1


class StorageTier(LowerStorage):
    """What goes from host memory to the store, and from the store to host memory.

    Attributes:
        fetches: those under way, by the requests' ids.
        has_skipped: the latest pass has looked a request up again in place of admitting it.
    """

    def __init__(
        self, host: HostTree, settings: StorageSettings, store: Store, *, compares_pairs: bool
    ) -> None:
        """`compares_pairs`: the tree compares pairs of tokens."""
        host.storage = self
        self._host = host
        self._settings = settings
        self._threads = StorageThreads(store)
        self._compares_pairs = compares_pairs
        self._keys = BlockKeys(host.page_size)
        self._retries = Retries(settings.retry_interval, settings.most_lookups)
        self.fetches: dict[str, Fetch] = {}
        self._waits: dict[str, _Wait] = {}
        # Fetches that have pages until their last page is read.
        self._allocated: dict[Fetch, None] = {}
        self._backups: dict[Backup, None] = {}
        self._to_write: list[Backup] = []
        self._to_free: list[Span] = []
        self._num_fetching = 0
        # Half of host memory is left for what is evicted from the device.
        self._most_fetching = self._host.memory.pool.num_pages * host.page_size // 2
        self.has_skipped = False

    @property
    def store(self) -> Store:
        return self._threads.store

    def use(self, store: Store) -> None:
        """Use another server's store, too; see `BaseScheduler.share_store`."""
        self._threads.use(store)

    # ---- lookups -------------------------------------------------------------------------------

    def look_up(self, request: SglangRequest, known_end: int | None = None) -> None:
        """Begin to fetch what follows a waiting request's prefix, which was found just now.

        `known_end`: the pages up to this token are known to be in the store.
        """
        start = request.looked_up_len = request.prefix_len + request.kv.host_len
        anchor = self._anchor(request)
        if anchor is None:
            return
        self._retries.cancel(request)
        wait = self._waits.get(request.rid)
        if (wait is not None and wait.is_over) or request.rid in self.fetches:
            return
        end = request.num_tokens - 1 - self._compares_pairs
        is_known = known_end is not None and start < known_end <= end
        if is_known and known_end is not None:
            end = known_end
        num_pages = self._num_worthwhile(start, end)
        if not num_pages:
            return
        if self._is_full:
            self._retries.add(request, known_end)
            return
        is_known = is_known and start + num_pages * self._host.page_size == known_end
        self._begin(request, anchor, start, num_pages, is_known=is_known)

    def fetch_for_transfer(self, request: SglangRequest, start: int) -> int:
        """Begin to fetch what the store has of a prompt from `start` on, where its prefix ends.

        A decode server's scheduler looks itself. It then promises what it has found, so that the
        prefill server does not send it: `query_storage_hit_length` in unified_radix_cache.py,
        `DecodeHiCachePreallocMixin` in disaggregation/decode_hicache_mixin.py.

        Returns: how many tokens these are.
        """
        anchor = self._anchor(request)
        if anchor is None or self._is_full:
            return 0
        page_size = self._host.page_size
        num_pages = self._num_worthwhile(start, request.prompt_len - self._compares_pairs)
        keys = self._keys_of(self._tokens(request), start, num_pages)
        num_tokens = self._threads.store.num_found(keys) * page_size
        num_pages = self._num_worthwhile(start, start + num_tokens)
        if num_pages:
            self._begin(request, anchor, start, num_pages, is_known=True)
        return num_pages * page_size

    def _anchor(self, request: SglangRequest) -> RadixNode | None:
        """The end of a request's prefix; None: nothing is fetched after it, as it has no copy."""
        kv = request.kv
        anchor = kv.found_on_host or kv.found or self._host.tree.root
        return None if anchor.parent is not None and anchor.host.pages is None else anchor

    def _num_worthwhile(self, start: int, end: int) -> int:
        """The whole pages between these tokens; 0 if they are too few to be fetched."""
        page_size = self._host.page_size
        num_pages = max(end - start, 0) // page_size
        return 0 if num_pages * page_size < self._settings.prefetch_threshold else num_pages

    @property
    def _is_full(self) -> bool:
        return self._num_fetching >= self._most_fetching

    def _begin(
        self,
        request: SglangRequest,
        anchor: RadixNode,
        start: int,
        num_pages: int,
        *,
        is_known: bool,
    ) -> None:
        page_size = self._host.page_size
        fetch = Fetch(
            request,
            anchor,
            self._host.memory.lock(anchor),
            start=start,
            keys=self._keys_of(self._tokens(request), start, num_pages),
            page_size=page_size,
            is_known=is_known,
        )
        self._threads.look_up(fetch)
        self.fetches[request.rid] = fetch
        self._num_fetching += fetch.num_tokens

    def _tokens(self, request: SglangRequest) -> TokenSequence:
        """What the tree compares of a request's tokens."""
        token_ids = request.kv.token_ids(request.num_tokens)
        return Pairs(token_ids) if self._compares_pairs else token_ids

    def _keys_of(self, token_ids: TokenSequence, start: int, num_pages: int) -> list[int]:
        """The keys of the pages that begin at a token; they say what is before them, too."""
        first = start // self._host.page_size
        end = start + num_pages * self._host.page_size
        keys: list[int] = self._keys.of(token_ids[:end])[first:].tolist()
        return keys

    # ---- what the scheduler asks ---------------------------------------------------------------

    def holds_back(self, request: SglangRequest, now_ns: int) -> bool:
        """Whether a candidate has to wait for its fetch, which is ended otherwise."""
        fetch = self.fetches.get(request.rid)
        if fetch is None:
            return False
        if not fetch.is_terminated:
            if self._settings.prefetch_policy == "wait_complete":
                return True
            if self._settings.prefetch_policy == "timeout":
                if not self._is_late(fetch, now_ns):
                    self._begin_wait(fetch, now_ns)
                    return True
                self._end_wait(fetch, now_ns)
        fetch.is_terminated = True
        if fetch.pages is not None:
            self._insert(fetch, fetch.pages)
            return False
        if not fetch.is_late:
            self._retries.add(request)
        self._revoke(request)
        return False

    def _is_late(self, fetch: Fetch, now_ns: int) -> bool:
        if fetch.pages is not None and fetch.num_done >= fetch.num_found:
            return False
        wait = self._waits.get(fetch.request.rid)
        return wait is not None and (wait.is_over or now_ns >= wait.ends_ns())

    def _begin_wait(self, fetch: Fetch, now_ns: int) -> None:
        """The time-out counts from the first pass in which the request might be admitted."""
        settings, rid = self._settings, fetch.request.rid
        if rid not in self._waits:
            timeout_ns = settings.timeout_ns + len(fetch.keys) * settings.timeout_ns_per_page
            self._waits[rid] = _Wait(now_ns, timeout_ns)

    def _end_wait(self, fetch: Fetch, now_ns: int) -> None:
        fetch.is_late = True
        self._retries.cancel(fetch.request)
        self._waits.setdefault(fetch.request.rid, _Wait(now_ns, 0.0)).is_over = True

    def has_lost(self, request: SglangRequest) -> bool:
        """Whether a candidate's prefix has become shorter since it was looked up.

        Then its prompt is to be looked up again, and it is not admitted in this pass.
        """
        before, now = request.looked_up_len, request.prefix_len + request.kv.host_len
        if not before or now >= before:
            return False
        if request.num_lookups >= self._settings.most_lookups:
            request.looked_up_len = now
            return False
        self.has_skipped = True
        request.num_lookups += 1
        return True

    def admitted(self, request: SglangRequest) -> None:
        self._waits.pop(request.rid, None)
        self._retries.cancel(request)

    def left(self, request: SglangRequest) -> None:
        """A waiting request is not to be served."""
        self._waits.pop(request.rid, None)
        self._retries.cancel(request)
        fetch = self.fetches.get(request.rid)
        if fetch is None:
            return
        fetch.is_terminated = True
        if fetch.pages is None:
            self._revoke(request)
            return
        done, fetch.pages = fetch.pages.split(fetch.num_done)
        self._free_later(done)
        self._retire(fetch)

    def take_due(self, waiting: Sequence[SglangRequest]) -> list[tuple[SglangRequest, int | None]]:
        """The requests to be looked up again in this pass, as `look_up` takes them."""
        due = self._retries.take_due(waiting)
        for request, _ in due:
            request.num_lookups += 1
        return due

    # ---- what has ended ------------------------------------------------------------------------

    def receive(self, now_ns: int) -> None:
        """Let the threads work until now: requests are taken in next, or a decision begins."""
        self._threads.advance(now_ns)

    def begin_decision(self, stored: list[RadixNode]) -> None:
        """Take in what the threads have done; these nodes are copied to host memory by now."""
        self.has_skipped = False
        self._write()
        looked_up, self._threads.looked_up = self._threads.looked_up, []
        read, self._threads.read = self._threads.read, []
        written, self._threads.written = self._threads.written, []
        to_free, self._to_free = self._to_free, []
        for node in stored:
            self.back_up(node)
        for fetch in looked_up:
            self._take_in_lookup(fetch)
        for progress in read:
            self._take_in_pages(progress)
        for backup in written:
            del self._backups[backup]
            self._host.memory.unlock(backup.node, backup.lock)
        for pages in to_free:
            self._host.memory.pool.free(pages)

    def end_decision(self) -> None:
        self._write()

    def _write(self) -> None:
        """Give the writing thread the copies that are complete.

        Those that become complete while results are taken in wait for the next decision.
        """
        for backup in self._to_write:
            self._threads.write(backup)
        self._to_write.clear()

    def _take_in_lookup(self, fetch: Fetch) -> None:
        request, page_size = fetch.request, self._host.page_size
        current = self.fetches.get(request.rid)
        if current is None:
            return
        num_tokens = fetch.num_found * page_size
        known_end: int | None = None
        if not fetch.is_terminated and num_tokens >= self._settings.prefetch_threshold:
            known_end = fetch.start + num_tokens
            fetch.pages = self._host.memory.take(num_tokens, self._settings.prefetch_threshold)
            if fetch.pages is not None:
                fetch.num_found = len(fetch.pages)
                self._allocated[fetch] = None
                self._threads.fetch(fetch)
                return
        if not fetch.is_late:
            self._retries.add(request, known_end)
        # As in SGLang, a newer fetch of the request may be revoked in place of this one.
        self._revoke(request)

    def _take_in_pages(self, progress: ReadPages) -> None:
        fetch = progress.fetch
        is_current = self.fetches.get(fetch.request.rid) is fetch
        if is_current:
            fetch.num_done = progress.num_read
        if not progress.is_last or fetch.pages is None:
            return
        if is_current:
            self._insert(fetch, fetch.pages)
        del self._allocated[fetch]
        self._free_later(fetch.pages)

    def _free_later(self, pages: Span) -> None:
        if len(pages):
            self._to_free.append(pages)

    def _insert(self, fetch: Fetch, pages: Span) -> None:
        """Put the pages that were read into the tree; `fetch.pages` are the others."""
        done, fetch.pages = pages.split(fetch.num_done)
        end = fetch.start + fetch.num_done * self._host.page_size
        self._host.insert_copies(fetch.anchor, self._tokens(fetch.request), end, done)
        self._retire(fetch)

    def _revoke(self, request: SglangRequest) -> None:
        fetch = self.fetches.get(request.rid)
        if fetch is not None:
            self._retire(fetch)

    def _retire(self, fetch: Fetch) -> None:
        del self.fetches[fetch.request.rid]
        self._host.memory.unlock(fetch.anchor, fetch.lock)
        self._num_fetching = max(self._num_fetching - fetch.num_tokens, 0)

    # ---- copies to the store -------------------------------------------------------------------

    def back_up(self, node: RadixNode) -> None:
        if node.host.pages is None:
            return
        start, num_pages = node.end - node.num_tokens, len(node.host.pages)
        keys = self._keys_of(path_tokens(node), start, num_pages)
        backup = Backup(node, self._host.memory.lock(node), keys)
        self._backups[backup] = None
        self._to_write.append(backup)

    # ---- what is held --------------------------------------------------------------------------

    def num_held_pages(self) -> int:
        held = [each.pages for each in self._allocated if each.pages is not None]
        return sum([len(pages) for pages in [*held, *self._to_free]])

    def locks(self) -> list[tuple[RadixNode, int]]:
        locks = [(each.anchor, each.lock) for each in self.fetches.values()]
        return locks + [(each.node, each.lock) for each in self._backups]

    # ---- time ----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Fetches or copies to the store are under way."""
        return bool(self.fetches or self._backups)

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find something done; None: nothing is under way."""
        if self.has_skipped or self._retries.are_coming or self._to_free or self._to_write:
            return now_ns
        times = [] if (next_ns := self._threads.next_ns()) is None else [next_ns]
        for rid, wait in self._waits.items():
            if rid in self.fetches and not wait.is_over and wait.ends_ns() > now_ns:
                times.append(wait.ends_ns())
        return min(times) if times else None
