"""Admission: which requests one prefill pass admits, and the budgets that they spend.

Rules 2 to 6 of docs/explanation/sglang.md (SGLang 0.5.23's PrefillAdder), and the admission rules
of docs/explanation/host-memory.md. Two deliberate differences, both where SGLang would stop serving
(docs/explanation/adr/0003): the next chunk of a prompt waits for the next step if it does not fit
into free and evictable pages; a request that ignores end tokens is admitted if it is alone.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.prefill.admission import DelayedPass
from sim.sglang.scheduler.server import SglangServer


class Verdict(Enum):
    """Whether the pass goes on after a candidate: SGLang's `AddReqResult`.

    CONTINUE: the pass goes on. NO_TOKEN: KV memory is used up. OTHER: another limit is reached.
    """

    CONTINUE = auto()
    NO_TOKEN = auto()
    OTHER = auto()


class PrefillBudget:
    """The budgets of one pass, in tokens (rule 2).

    Two budgets are for KV memory: available tokens (free and evictable) minus an offset. The other
    two limit the prefill tokens of a step.

    Example: a pool of 32,000 tokens, pages of 128, prompts of 1,000 tokens, max_new_tokens 7,000,
    clip 4,096, and nothing runs. Each admitted request adds 1,024 (its prompt in whole pages) + 128
    (one more page) + 4,096 (its output, clipped) = 5,248 to `total_offset`. A candidate needs
    1,000 + 4,096 + 128 = 5,224, which must be less than `total_tokens`. After five requests
    32,000 - 26,240 = 5,760 tokens remain, so a sixth is admitted; then 512 remain and a seventh is
    not. Six of them are admitted although their outputs could grow to 7,000 tokens each.

    Attributes:
        total_offset: tokens reserved for prompts and outputs of admitted requests, and for the
            growth of running requests. A float, because the new-token ratio scales the growth.
        current_offset: tokens reserved for prompts of this pass alone.
        input_tokens: prefill tokens left of `max_prefill_tokens`.
        chunk_tokens: prefill tokens left of `chunked_prefill_size`; None: chunking is off.
        limit: a further limit that the KV memory sets; None: there is none.
    """

    def __init__(self, server: SglangServer) -> None:
        config, kv = server.config, server.kv
        num_mixed_rows = len(server.running) if server.mixes else 0
        chunk_size = config.chunked_prefill_size
        self._kv = kv
        self._more_tokens = kv.page_size if server.rules.charges_page else 0
        self.total_offset = float(num_mixed_rows)
        self.current_offset = num_mixed_rows
        self.input_tokens = config.max_prefill_tokens - num_mixed_rows
        self.chunk_tokens = chunk_size - num_mixed_rows if chunk_size > 0 else None
        self.limit = kv.new_pass_limit()

    @property
    def total_tokens(self) -> float:
        """SGLang's `rem_total_tokens`."""
        return self._kv.available_tokens - self.total_offset

    @property
    def current_tokens(self) -> int:
        """SGLang's `cur_rem_tokens`."""
        return self._kv.available_tokens - self.current_offset

    def verdict(self) -> Verdict:
        available = self._kv.available_tokens
        if available - self.total_offset <= 0 or available - self.current_offset <= 0:
            return Verdict.NO_TOKEN
        if self.limit is not None and self.limit.left <= 0:
            return Verdict.NO_TOKEN
        if self.input_tokens <= 0 or (self.chunk_tokens is not None and self.chunk_tokens <= 0):
            return Verdict.OTHER
        return Verdict.CONTINUE

    def spend(self, extend_len: int, output_tokens: int) -> None:
        """Charge an admitted row. From 0.5.10 it is charged one extra page, at page size 1 too."""
        paged = self._kv.ceil_page(extend_len)
        prompt_tokens = paged + self._more_tokens
        self.total_offset += prompt_tokens + output_tokens
        self.current_offset += prompt_tokens
        self.input_tokens -= paged
        if self.limit is not None:
            self.limit.reserve(paged, output_tokens, self.chunk_tokens)
        if self.chunk_tokens is not None:
            self.chunk_tokens -= paged


class FutureMemory:
    """Predicts the memory that requests of one pass will need until the last one ends.

    A request with `ignore_eos` always generates `max_new_tokens` tokens, so its end is known. So
    admission need not reserve all of its output at once: shorter requests end earlier, and the
    memory that they free can be used.

    Example with 40 free tokens. A has 10 tokens left and holds 100; B has 30 left and holds 50.
    Until A ends, both grow by 10 tokens: 20 of the 40 free tokens suffice. When A ends, it frees
    its 100 tokens and its growth. Until B ends, B grows by 30 tokens in all, and 40 + 100 tokens
    suffice for that.
    """

    def __init__(
        self,
        running: Sequence[SglangRequest],
        ratio: float,
        candidate: SglangRequest,
        admitted: Iterable[SglangRequest],
    ) -> None:
        self._ratio = ratio
        rows = [self._row(request) for request in (candidate, *running, *admitted)]
        self._rows = sorted((row for row in rows if row[0] > 0), key=lambda row: row[0])

    def _row(self, request: SglangRequest) -> tuple[float, int]:
        """(tokens that the request has left to generate, tokens that it holds)."""
        ratio = 1.0 if request.spec.ignore_eos else self._ratio
        return request.max_new_tokens * ratio - request.num_generated, request.num_tokens

    def add(self, request: SglangRequest) -> None:
        """Insert a further candidate before the first row that has at least as many tokens left.

        If there is no such row, the candidate goes *before the last row*, out of order: SGLang's
        loop ends there.
        """
        row = self._row(request)
        if row[0] <= 0:
            return
        place = max(len(self._rows) - 1, 0)
        for i, (left, _) in enumerate(self._rows):
            if row[0] <= left:
                place = i
                break
        self._rows.insert(place, row)

    def fits(self, free_tokens: int) -> bool:
        """Whether `free_tokens` tokens and the memory freed by ending rows cover all growth.

        SGLang keeps one token for each row spare.
        """
        num_freed = 0
        for i, (left, held) in enumerate(self._rows):
            num_rows = len(self._rows) - i
            if free_tokens + num_freed - left * num_rows <= num_rows:
                return False
            num_freed += held
        return True


class PrefillAdder:
    """Collects the rows of one prefill batch.

    Attributes:
        admitted: rows so far, in batch order.
        new_chunked: the admitted request whose prompt was cut, if any.
    """

    def __init__(
        self,
        server: SglangServer,
        ratio: float,
        *,
        cuts_while_chunked: bool = True,
        delay: DelayedPass | None = None,
    ) -> None:
        """Begin a pass.

        `ratio` is the new-token ratio; for `cuts_while_chunked` see `SchedulePolicy`. `delay` is
        asked whether a candidate that fits may be admitted; None: it may.
        """
        self._cuts_while_chunked = cuts_while_chunked
        self._others_run = server.others_run
        self._delay = delay
        self._config = server.config
        self._kv = server.kv
        self._running = server.running
        self._ratio = ratio
        self.budget = PrefillBudget(server)
        # Rows that have finished and still count (see `VersionRules`).
        self._ended = server.batch.ended
        self._rules = server.rules
        self._needed_more = self._kv.page_size if self._rules.needs_page else 0
        self._known_ratio = 1.0 if self._rules.reserves_known_outputs else ratio
        self.budget.total_offset += self._running.reserved_tokens(
            self._config.clip_max_new_tokens, ratio, self._known_ratio
        )
        for request in self._ended:
            self.budget.total_offset += self.reservation(request)
        self.admitted: list[SglangRequest] = []
        self.new_chunked: SglangRequest | None = None
        self._future: FutureMemory | None = None

    def reservation(self, request: SglangRequest) -> float:
        """Tokens reserved for the output that a running request has left (rule 2)."""
        left = request.max_new_tokens - request.num_generated
        ratio = self._known_ratio if request.spec.ignore_eos else self._ratio
        return min(left, self._config.clip_max_new_tokens) * ratio

    def _output_charge(self, request: SglangRequest) -> int:
        return min(request.max_new_tokens, self._config.clip_max_new_tokens)

    def _output_left(self, request: SglangRequest) -> int:
        left = max(request.max_new_tokens - request.num_generated, 0)
        return min(left, self._config.clip_max_new_tokens)

    def continue_chunk(
        self, request: SglangRequest, limit: int | None = None
    ) -> SglangRequest | None:
        """Take the next chunk of the chunked request (rule 5).

        `limit` is the longest chunk in tokens, if the policy keeps room for other requests.

        Returns the request if it has more chunks to come or could not continue now, otherwise None.
        """
        chunk = self.budget.chunk_tokens
        if chunk is None:
            chunk = request.num_tokens
        needs_room = self._rules.chunk_needs_room
        room = min(chunk, int(self.budget.total_tokens)) if needs_room else chunk
        if self.budget.limit is not None:
            room = min(room, self.budget.limit.left - self._kv.page_size)
            if room <= 0:
                return request
        self._allows_prefill()  # the delayer counts it, and a chunk goes on in any case
        room = room if room > 0 else chunk
        if limit is not None:
            room = min(room, limit)
        remaining = request.num_tokens - request.prefix_len
        extend_len = min(remaining, room)
        new_tokens = self._kv.ceil_page(request.prefix_len + extend_len) - self._kv.ceil_page(
            request.prefix_len
        )
        if extend_len <= 0 or new_tokens > self._kv.available_tokens:
            return request
        unfinished = remaining > room
        output_tokens = 0 if unfinished else self._output_charge(request)
        self._admit(request, request.prefix_len + extend_len, output_tokens)
        return request if unfinished else None

    def add(self, request: SglangRequest, *, has_chunked: bool) -> Verdict:
        """Try to admit a waiting request, right after its prefix was matched (rule 4).

        `has_chunked`: another prompt is being prefilled chunk by chunk.

        Returns whether the pass goes on. It does not say whether the request was admitted: for
        example, OTHER is also the verdict after a request that was admitted and used up the chunk
        budget.
        """
        config = self._config
        most = config.prefill_max_requests
        if most is not None and len(self.admitted) >= most:
            return Verdict.OTHER
        if request.spec.ignore_eos and config.disable_radix_cache:
            return self._add_ignoring_eos(request)
        self._kv.lock_prefix(request.kv)
        verdict = self._try(request, has_chunked=has_chunked)
        if verdict is not None:
            self._kv.unlock_prefix(request.kv)
            return verdict
        return self.budget.verdict()

    def _try(self, request: SglangRequest, *, has_chunked: bool) -> Verdict | None:
        """Admit the request (returns None), or return the verdict that refuses it."""
        kv = request.kv
        host_len, num_loaded = kv.host_len, 0
        extend_end = self._extend_end(
            request, host_len, kv.host_window_len, has_chunked=has_chunked
        )
        if not isinstance(extend_end, Verdict) and not self._allows_prefill():
            return Verdict.OTHER
        if kv.found_on_host is not None and not isinstance(extend_end, Verdict):
            num_loaded = self._kv.load_prefix(kv)
            if num_loaded < host_len:
                extend_end = self._extend_end(request, 0, 0, has_chunked=has_chunked)
            else:
                # A load of windows or states also gives back what of the path is on the device.
                extend_end = min(extend_end + num_loaded - host_len, request.num_tokens)
        if isinstance(extend_end, Verdict):
            return extend_end
        whole = extend_end == request.num_tokens
        if not whole:
            self.new_chunked = request
        self._admit(request, extend_end, self._output_charge(request) if whole else 0, num_loaded)
        return None

    def _extend_end(
        self, request: SglangRequest, host_len: int, host_window_len: int, *, has_chunked: bool
    ) -> int | Verdict:
        """Where the request's prefill may end if `host_len` tokens are loaded from host memory.

        Loaded tokens need memory in the pool, as computed ones do, but no prefill budget. For
        layers with a window, `host_window_len` tokens are loaded.

        Returns:
            The end, a position in the request's tokens, or the verdict that refuses the request.
        """
        budget = self.budget
        prefix_len = request.prefix_len + host_len
        extend_len = request.num_tokens - prefix_len
        left = self._output_left(request)
        needed = host_len + extend_len + left + self._needed_more
        paged = self._kv.ceil_page(extend_len)
        if needed >= budget.total_tokens and not self._may_overdraw(request, host_len + paged):
            return Verdict.NO_TOKEN
        chunk_tokens = budget.chunk_tokens
        if budget.limit is not None:
            window_len = self._kv.ceil_page(host_window_len)
            if not budget.limit.fits(paged, left, chunk_tokens, window_len):
                chunk_tokens = budget.limit.largest_chunk(paged, left, chunk_tokens, window_len)
                if not chunk_tokens:
                    return Verdict.NO_TOKEN
        limits_input = budget.chunk_tokens is None or self._rules.limits_input_of_chunks
        if limits_input and self.admitted and paged >= budget.input_tokens:
            return Verdict.OTHER
        if chunk_tokens is not None and paged > chunk_tokens:
            if has_chunked and not (self._cuts_while_chunked and budget.limit is None):
                return Verdict.OTHER
            end = self._kv.floor_page(prefix_len + self._kv.floor_page(chunk_tokens))
            return Verdict.OTHER if end <= prefix_len else end
        return request.num_tokens

    def _allows_prefill(self) -> bool:
        """Whether the prefill delayer lets requests in (rule 20)."""
        if self._delay is None:
            return True
        return self._delay.allows(len(self._running.requests) + len(self._ended))

    def _may_overdraw(self, request: SglangRequest, paged: int) -> bool:
        """Whether an aged request fits if only its prompt counts: `paged` tokens in whole pages."""
        return request.may_overdraw and paged + self._needed_more <= self.budget.current_tokens

    def _admit(
        self, request: SglangRequest, extend_end: int, output_tokens: int, num_loaded: int = 0
    ) -> None:
        load_tokens = request.kv.load_tokens
        if load_tokens:
            request.kv.load_tokens = 0.0
        request.take_chunk(extend_end, num_loaded, load_tokens)
        self.admitted.append(request)
        self.budget.spend(request.extend_len, output_tokens)

    def _add_ignoring_eos(self, request: SglangRequest) -> Verdict:
        """Try to admit a request of known length, with the radix cache disabled (rule 6).

        A request that is alone always fits (rule 1), so it is admitted. SGLang may refuse it for
        ever, because its prediction keeps one token spare.
        """
        budget = self.budget
        extend_len = request.num_tokens
        paged = self._kv.ceil_page(extend_len) + self._needed_more
        overdraws = self._may_overdraw(request, self._kv.ceil_page(extend_len))
        if paged > min(budget.current_tokens, budget.total_tokens) and not overdraws:
            return Verdict.NO_TOKEN
        if budget.limit is not None:
            left = self._output_left(request)
            if budget.limit.needed(extend_len, left, budget.chunk_tokens) > budget.limit.left:
                return Verdict.NO_TOKEN
        elif self._future is None:
            rows = [*self._running.requests, *self._ended]
            self._future = FutureMemory(rows, self._ratio, request, self.admitted)
        else:
            self._future.add(request)
        alone = not (self._running.requests or self.admitted or self._others_run)
        lasts = self._future is None or self._future.fits(budget.current_tokens - paged)
        if not (alone or overdraws or lasts):
            return Verdict.NO_TOKEN
        if not self._allows_prefill():
            return Verdict.OTHER
        output_tokens = self._output_charge(request)
        if budget.chunk_tokens is not None and extend_len > budget.chunk_tokens:
            if budget.chunk_tokens <= 0:
                return Verdict.OTHER
            extend_len, output_tokens = budget.chunk_tokens, 0
            self.new_chunked = request
        self._kv.lock_prefix(request.kv)
        self._admit(request, extend_len, output_tokens)
        return budget.verdict()
