"""Storage below host memory: prompts are fetched from a store while their requests wait.

Follows SGLang 0.5.23 with `--hicache-storage-backend` (docs/explanation/storage.md):
`prefetch_from_storage`, `check_prefetch_progress` and `_drain_storage_control_queues_impl` in
mem_cache/unified_radix_cache.py, and `_prefetch_kvcache` in managers/scheduler.py.
"""

from collections.abc import Sequence

from sim.core.tokens import TokenSequence
from sim.engine.page_pool import Span
from sim.engine.store import WHOLE_PAGE, Store
from sim.sglang.cache.host.memory import PoolCopies
from sim.sglang.cache.host.tree import HostTree, LowerStorage
from sim.sglang.cache.settings import StorageSettings
from sim.sglang.cache.storage.backups import Backups
from sim.sglang.cache.storage.parts import FetchedPart, StoredPart
from sim.sglang.cache.storage.retries import Retries
from sim.sglang.cache.storage.threads import Fetch, ReadPages, StorageThreads
from sim.sglang.cache.storage.waits import Waits
from sim.sglang.cache.tree.prefix_cache import Pairs
from sim.sglang.cache.tree.radix_cache import PathKeys
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import SglangRequest


class StorageTier(LowerStorage):
    """What goes from host memory to the store, and from the store to host memory.

    Attributes:
        fetches: those under way, by the requests' ids.
        has_skipped: the latest pass has looked a request up again in place of admitting it.
    """

    def __init__(
        self, host: HostTree, settings: StorageSettings, store: Store, *, compares_pairs: bool
    ) -> None:
        """`compares_pairs`: the tree compares pairs of tokens. `host` has all of its parts."""
        host.storage = self
        self._host = host
        self._settings = settings
        self._threads = StorageThreads(store, round(host.settings.full_share * WHOLE_PAGE))
        self._parts = [
            StoredPart(copies, host.page_size, number)
            for number, copies in enumerate(host.parts, 1)
        ]
        self._compares_pairs = compares_pairs
        self._keys = PathKeys(host.page_size)
        self._backups = Backups(host, self._threads, self._parts, self._keys)
        self._retries = Retries(settings.retry_interval, settings.most_lookups)
        self.fetches: dict[str, Fetch] = {}
        self._waits = Waits(settings)
        # Fetches that have pages until their last page is read.
        self._allocated: dict[Fetch, None] = {}
        self._to_free: list[Span] = []
        self._units_to_free: list[tuple[FetchedPart, int]] = []
        self._num_fetching = 0
        # Half of host memory is left for what is evicted from the device.
        self._most_fetching = self._host.memory.pool.num_pages * host.page_size // 2
        self.has_skipped = False

    @property
    def store(self) -> Store:
        return self._threads.store

    def use(self, store: Store) -> None:
        """Use another server's store, too; see `BaseScheduler.share_stores`."""
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
        if self._waits.is_over(request.rid) or request.rid in self.fetches:
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
        keys = self._keys_after(anchor, request, start, num_pages)
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
        fetch = Fetch(
            request,
            anchor,
            self._host.lock_copies(anchor),
            start=start,
            keys=self._keys_after(anchor, request, start, num_pages),
            page_size=self._host.page_size,
            is_known=is_known,
        )
        for part in self._parts:
            if num_of_part := part.num_to_fetch(num_pages, at_root=anchor.parent is None):
                fetch.parts.append(FetchedPart(part, num_of_part))
        self._threads.look_up(fetch)
        self.fetches[request.rid] = fetch
        self._num_fetching += fetch.num_tokens

    def _tokens(self, request: SglangRequest) -> TokenSequence:
        """What the tree compares of a request's tokens."""
        token_ids = request.kv.token_ids(request.num_tokens)
        return Pairs(token_ids) if self._compares_pairs else token_ids

    def _keys_after(
        self, anchor: RadixNode, request: SglangRequest, start: int, num_pages: int
    ) -> list[int]:
        """The keys of a request's pages from `start` on, which follow a node.

        Nodes without a copy are not counted. So under write-back with parts, the prefix may seem to
        end before that node: SGLang then looks for pages of no prompt, which no store has.
        """
        end = start + num_pages * self._host.page_size
        keys = self._keys.after(anchor, self._tokens(request)[start:end], start)
        return keys if start == anchor.end else [~key for key in keys]

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
                    self._waits.begin(request.rid, len(fetch.keys), now_ns)
                    return True
                fetch.is_late = True
                self._waits.end(request.rid)
                self._retries.cancel(request)
        fetch.is_terminated = True
        if fetch.pages is not None:
            self._insert(fetch, fetch.pages)
            return False
        if not fetch.is_late:
            self._retries.add(request)
        self._revoke(request)
        return False

    def _is_late(self, fetch: Fetch, now_ns: int) -> bool:
        if fetch.pages is not None and fetch.num_done == fetch.num_found:
            return False  # What goes beside the pages is waited for in any case.
        return self._waits.is_late(fetch.request.rid, now_ns)

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
        self._waits.forget(request.rid)
        self._retries.cancel(request)

    def left(self, request: SglangRequest) -> None:
        """A waiting request is not to be served."""
        self._waits.forget(request.rid)
        self._retries.cancel(request)
        fetch = self.fetches.get(request.rid)
        if fetch is None:
            return
        fetch.is_terminated = True
        if fetch.pages is None:
            self._revoke(request)
            return
        self._discard(fetch, fetch.pages)

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
        self._backups.hand_over()
        looked_up, self._threads.looked_up = self._threads.looked_up, []
        read, self._threads.read = self._threads.read, []
        written, self._threads.written = self._threads.written, []
        to_free, self._to_free = self._to_free, []
        units_to_free, self._units_to_free = self._units_to_free, []
        units_to_free += self._threads.given_back
        self._threads.given_back = []
        for node in stored:
            self._backups.add(node)
        for fetch in looked_up:
            self._take_in_lookup(fetch)
        for progress in read:
            self._take_in_pages(progress)
        self._backups.end(written)
        for pages in to_free:
            self._host.memory.pool.free(pages)
        for fetched, num_units in units_to_free:
            fetched.part.copies.pool.free(num_units)

    def end_decision(self) -> None:
        self._backups.hand_over()

    def _take_in_lookup(self, fetch: Fetch) -> None:
        request, page_size = fetch.request, self._host.page_size
        current = self.fetches.get(request.rid)
        if current is None:
            return
        num_tokens = fetch.num_found * page_size
        known_end: int | None = None
        if not fetch.is_terminated and num_tokens >= self._settings.prefetch_threshold:
            known_end = fetch.start + num_tokens
            pages = self._host.memory.take(num_tokens, self._settings.prefetch_threshold)
            if pages is not None and self._reserve_parts(fetch):
                fetch.pages, fetch.num_found = pages, len(pages)
                self._allocated[fetch] = None
                self._threads.fetch(fetch)
                return
            if pages is not None:
                self._free_later(pages)
        if not fetch.is_late:
            self._retries.add(request, known_end)
        # As in SGLang, a newer fetch of the request may be revoked in place of this one.
        self._revoke(request)

    def _reserve_parts(self, fetch: Fetch) -> bool:
        """Get room in host memory for what goes beside the pages: for all of it, or for none."""
        if all(part.reserve(fetch.num_found) for part in fetch.parts):
            return True
        self._free_parts_later(fetch)
        return False

    def _take_in_pages(self, progress: ReadPages) -> None:
        fetch, of_parts = progress.fetch, progress.of_parts
        is_current = self.fetches.get(fetch.request.rid) is fetch
        if is_current:
            fetch.num_done = progress.num_read
        if of_parts is None or fetch.pages is None:
            return
        if is_current:
            fetch.are_parts_over = True
            for part, num_read in zip(fetch.parts, of_parts, strict=True):
                part.num_read = num_read
            self._insert(fetch, fetch.pages)
        del self._allocated[fetch]
        self._free_later(fetch.pages)
        self._free_parts_later(fetch)

    def _free_later(self, pages: Span) -> None:
        if len(pages):
            self._to_free.append(pages)

    def _free_parts_later(self, fetch: Fetch) -> None:
        for part in fetch.parts:
            if num_units := part.give_back():
                self._units_to_free.append((part, num_units))

    def _insert(self, fetch: Fetch, pages: Span) -> None:
        """Put what was read into the tree; `fetch.pages` are the pages that were not.

        What has parts is of no use unless all of it has come: `_check_hybrid_prefetch_result` in
        unified_radix_cache.py.
        """
        if fetch.parts and not fetch.is_whole:
            self._discard(fetch, pages)
            return
        done, fetch.pages = pages.split(fetch.num_done)
        end = fetch.start + fetch.num_done * self._host.page_size
        tokens = self._tokens(fetch.request)
        target = self._host.insert_copies(fetch.anchor, tokens, end, done)
        for fetched in fetch.parts:
            num_units = fetched.part.insert(fetch.anchor, target, fetched.give_back())
            if num_units:
                self._units_to_free.append((fetched, num_units))
        self._retire(fetch)

    def _discard(self, fetch: Fetch, pages: Span) -> None:
        """Free what was read; the rest becomes free when the threads have ended the fetch."""
        done, fetch.pages = pages.split(fetch.num_done)
        self._free_later(done)
        if fetch.are_parts_over:
            self._free_parts_later(fetch)
        self._retire(fetch)

    def _revoke(self, request: SglangRequest) -> None:
        fetch = self.fetches.get(request.rid)
        if fetch is not None:
            self._retire(fetch)

    def _retire(self, fetch: Fetch) -> None:
        del self.fetches[fetch.request.rid]
        self._host.unlock_copies(fetch.anchor, fetch.locks)
        self._num_fetching = max(self._num_fetching - fetch.num_tokens, 0)

    def back_up(self, node: RadixNode) -> None:
        self._backups.add(node)

    # ---- what is held --------------------------------------------------------------------------

    def num_held_pages(self) -> int:
        held = [each.pages for each in self._allocated if each.pages is not None]
        return sum([len(pages) for pages in [*held, *self._to_free]])

    def num_held_units(self, copies: PoolCopies) -> int:
        parts = [(part, part.num_units) for fetch in self._allocated for part in fetch.parts]
        parts += [*self._units_to_free, *self._threads.given_back]
        return sum([num_units for fetched, num_units in parts if fetched.part.copies is copies])

    def locks(self) -> list[tuple[RadixNode, int]]:
        locks = [(each.anchor, each.locks[0]) for each in self.fetches.values()]
        return locks + self._backups.locks()

    # ---- time ----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Fetches or copies to the store are under way."""
        return bool(self.fetches) or self._backups.are_under_way

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find something done; None: nothing is under way."""
        to_free = bool(self._to_free or self._units_to_free) or self._backups.waits_for_decision
        if self.has_skipped or self._retries.are_coming or to_free:
            return now_ns
        times = (self._threads.next_ns(), self._waits.next_ns(self.fetches, now_ns))
        return min([time_ns for time_ns in times if time_ns is not None], default=None)
