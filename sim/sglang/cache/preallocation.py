"""How much KV may be allocated: for prompts computed elsewhere, and from the window pool.

Source: SGLang 0.5.23, `_required_admission_tokens`, `_prealloc_required_tokens` and
`_allocatable_token_budgets` of `DecodePreallocQueue` in disaggregation/decode.py.

What one prefill pass, or a decode server's admission, may take from the window pool: rule 23 of
docs/explanation/sglang.md. SGLang 0.5.23: SWAPrefillBudget in mem_cache/prefill_budget.py;
`_swa_tail_len`, `_prealloc_required_tokens` and `_swa_tail_allocatable_token_budget` of
`DecodePreallocQueue` in disaggregation/decode.py.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sim.sglang.request import SglangRequest


class Reserve(NamedTuple):
    """What is kept free for requests that decode.

    Attributes:
        decode_tokens: tokens for the next outputs of each request that holds KV.
        clip: of a request's longest output, admission looks this many tokens ahead at most.
    """

    decode_tokens: int
    clip: int


class Preallocation:
    """A pool's limits: what a new request needs, and what is free beside the reserve.

    Example: a pool of 1,000 free tokens, two requests that hold KV, 100 reserved for each. A prompt
    of 600 tokens fits: it needs 600 + 100 of 1,000 - 200. One of 701 does not.

    Attributes:
        gives_back: decode steps may make more of the pool free, not only less.
    """

    def __init__(
        self, pool_tokens: int, page_size: int, available: Callable[[], int], reserve: Reserve
    ) -> None:
        """`available` returns the free tokens of the pool, with those that could be evicted."""
        self.gives_back = False
        self._pool_tokens = pool_tokens
        self._page_size = page_size
        self._available = available
        self._reserve = reserve
        # In a pass: the tokens of all running requests, which could be retracted, and how many more
        # the largest of them may need.
        self._num_retractable = self._most_needed = 0

    # ---- what a pool needs ---------------------------------------------------------------------

    def _held(self, num_tokens: int) -> int:
        """Of the first `num_tokens` tokens of a request, those that get KV in this pool."""
        return num_tokens

    def _required(self, num_tokens: int) -> int:
        """What must be free for `num_tokens` tokens of a request: whole pages and the reserve."""
        return -(-self._held(num_tokens) // self._page_size) * self._page_size + (
            self._reserve.decode_tokens
        )

    def _kept_free(self, num_active: int) -> int:
        """Tokens that stay free for the next outputs of `num_active` requests with KV."""
        return self._reserve.decode_tokens * num_active

    def _whole(self, prompt_len: int, max_new_tokens: int) -> int:
        """Tokens of a prompt and its longest output, as far as admission looks ahead."""
        return self._held(prompt_len) + min(max_new_tokens, self._reserve.clip)

    def longest_prefix(self, num_tokens: int) -> int:
        """How many of a request's first `num_tokens` tokens may come from the prefix cache."""
        return num_tokens

    def reclaim(self, num_tokens: int) -> None:
        """Evict for an admitted request of `num_tokens` tokens, before other pools do."""

    # ---- requests that fit ---------------------------------------------------------------------

    def ever_fits(self, prompt_len: int, max_new_tokens: int) -> bool:
        """Whether a request of this size would fit into the empty pool."""
        most = max(self._required(prompt_len), self._whole(prompt_len, max_new_tokens))
        return most <= self._pool_tokens

    def ever_fits_again(self, num_tokens: int) -> bool:
        """Whether a retracted request of `num_tokens` tokens would fit into the empty pool."""
        return self._required(num_tokens) <= self._pool_tokens

    def begin_pass(self, rows: Sequence[SglangRequest]) -> None:
        """A pass looks at new requests; the running ones could be retracted for them."""
        self._num_retractable = sum(
            [self._held(row.prompt_len) + row.num_generated for row in rows]
        )
        self._most_needed = max(
            [self._whole(row.prompt_len, row.max_new_tokens) for row in rows], default=0
        )
        if rows:
            self._most_needed -= self._num_retractable

    def fits(
        self,
        request: SglangRequest,
        num_cached: int,
        num_active: int,
        retracted: Iterable[int],
        num_to_restore: int = 0,
    ) -> bool:
        """Whether a new request fits.

        Args:
            request: the request.
            num_cached: tokens of its prompt that are cached on the device.
            num_active: requests that hold KV.
            retracted: tokens of each retracted request that has to come first.
            num_to_restore: tokens that will be loaded from host memory for other requests.
        """
        own = self._required(request.prompt_len)
        whole = self._whole(request.prompt_len, request.max_new_tokens) - self._num_retractable
        free = self._available() - max(self._kept_free(num_active), self._most_needed)
        free -= sum([self._required(num_tokens) for num_tokens in retracted]) + num_to_restore
        return max(own, whole) - num_cached <= free

    def fits_again(self, num_tokens: int, num_active: int) -> bool:
        """Whether a retracted request of `num_tokens` tokens fits now."""
        return self._required(num_tokens) <= self._available() - self._kept_free(num_active)

    def only_shrinks(self, request: SglangRequest, num_active: int) -> bool:
        """Whether decode steps can only make a request fit less.

        Each step makes the running requests longer. They take pages, so that less is free. But more
        of their tokens could be retracted, so that less has to be kept free for the largest of
        them, and the new request needs less. Only the pages count if neither what is kept free nor
        what the request needs depends on the tokens that could be retracted.
        """
        if self.gives_back or self._most_needed > self._kept_free(num_active):
            return False
        whole = self._whole(request.prompt_len, request.max_new_tokens) - self._num_retractable
        return whole <= self._required(request.prompt_len)


class WindowBudget:
    """Tokens of the window pool that a pass has reserved.

    A request needs at most a window of tokens there, and while its prompt is computed the tokens of
    the step, too: they are freed afterwards. Token counts of prompts are in whole pages.
    `chunk_tokens` is the largest part of a prompt that the step computes; None: all of it.
    """

    def __init__(
        self, window: int, page_size: int, pool_tokens: int, available: Callable[[], int]
    ) -> None:
        """`available` returns the free and evictable tokens of the window pool."""
        self._window = window
        self._page_size = page_size
        self._pool_tokens = pool_tokens
        self._available = available
        self._num_reserved = 0

    @property
    def left(self) -> int:
        """Tokens that are not reserved; may be negative."""
        return self._available() - self._num_reserved

    def needed(self, extend_len: int, output_len: int, chunk_tokens: int | None) -> int:
        """The most tokens that a request needs at a time.

        Of it, `extend_len` tokens are to be computed, in all chunks, and up to `output_len` tokens
        generated.
        """
        in_step = extend_len if chunk_tokens is None else min(extend_len, chunk_tokens)
        behind = max(in_step - self._window, 0)
        return behind + min(extend_len + output_len, self._window) + self._page_size

    def reserve(self, extend_len: int, output_len: int, chunk_tokens: int | None) -> None:
        """Reserve what an admitted request needs."""
        self._num_reserved += self.needed(extend_len, output_len, chunk_tokens)

    def fits(
        self, extend_len: int, output_len: int, chunk_tokens: int | None, load_len: int
    ) -> bool:
        """Whether a request fits; `load_len` further tokens of it are loaded from host memory."""
        return self.needed(extend_len, output_len, chunk_tokens) + load_len < self.left

    def largest_chunk(
        self, extend_len: int, output_len: int, chunk_tokens: int | None, load_len: int
    ) -> int:
        """The largest first chunk of a request that does not fit; 0: it has to wait.

        Only a request that would not fit into an empty pool is cut. Others wait, so that running
        requests keep free memory for their windows.
        """
        if chunk_tokens is None:
            return 0
        if self.needed(extend_len, output_len, chunk_tokens) + load_len < self._pool_tokens:
            return 0
        left = self.left - self.needed(0, output_len, None) - load_len
        return min(chunk_tokens, max(left // self._page_size * self._page_size, 0))


class WindowTail:
    """The tokens of a prompt from elsewhere that get KV in the window pool: its last window."""

    def __init__(self, window: int, page_size: int, *, is_cached: bool) -> None:
        """`is_cached`: the server has a prefix cache."""
        self.window = window
        self.page_size = page_size
        self.is_cached = is_cached

    def start(self, num_tokens: int) -> int:
        """The first of a prompt's `num_tokens` tokens that gets KV in the window pool.

        Pages of one token have no tail: SGLang then allocates the whole prompt in both pools. With
        a prefix cache the tail is a token longer: the cache does not get a prompt's last token, and
        what it gets must end with a whole window.
        """
        if self.page_size == 1:
            return 0
        length = max(self.window, self.page_size) + 1 if self.is_cached else self.window
        return max(num_tokens - length, 0) // self.page_size * self.page_size


class WindowPreallocation(Preallocation):
    """The limits of a window pool, whose pages have several tokens.

    A request that holds KV grows by no more than a window there, so that less is kept free for it.
    """

    def __init__(
        self,
        pool_tokens: int,
        available: Callable[[], int],
        reserve: Reserve,
        *,
        tail: WindowTail,
        evict_until_free: Callable[[int], bool],
    ) -> None:
        """`evict_until_free(n)` evicts until `n` tokens of the pool are free."""
        super().__init__(pool_tokens, tail.page_size, available, reserve)
        self.gives_back = True
        self._tail = tail
        self._evict_until_free = evict_until_free

    def _held(self, num_tokens: int) -> int:
        return num_tokens - self._tail.start(num_tokens)

    def _required(self, num_tokens: int) -> int:
        required = super()._required(num_tokens)
        return required if self._tail.is_cached else required - self._reserve.decode_tokens

    def _kept_free(self, num_active: int) -> int:
        used = self._pool_tokens - self._available()
        growth = max(num_active * self._tail.window - used, 0)
        return min(super()._kept_free(num_active), growth)

    def longest_prefix(self, num_tokens: int) -> int:
        return self._tail.start(num_tokens)

    def reclaim(self, num_tokens: int) -> None:
        page_size = self._page_size
        self._evict_until_free(-(-self._held(num_tokens) // page_size) * page_size)

    def fits(
        self,
        request: SglangRequest,
        num_cached: int,
        num_active: int,
        retracted: Iterable[int],
        num_to_restore: int = 0,
    ) -> bool:
        """As in `Preallocation`; cached tokens have no KV in this pool."""
        return super().fits(request, 0, num_active, retracted)
