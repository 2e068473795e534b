"""What one prefill pass, or a decode server's admission, may take from the window pool.

Rule 23 of docs/explanation/sglang.md. SGLang 0.5.23: SWAPrefillBudget in mem_cache/
prefill_budget.py; `_swa_tail_len`, `_prealloc_required_tokens` and
`_swa_tail_allocatable_token_budget` of `DecodePreallocQueue` in disaggregation/decode.py.
"""

from collections.abc import Callable, Iterable

from sim.sglang.cache.preallocation import Preallocation, Reserve
from sim.sglang.request import SglangRequest


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

        Pages of one token have no tail: SGLang then allocates the whole prompt in both pools. What
        goes into the cache must end with a whole window, one token before the end.
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
