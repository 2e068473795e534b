"""What one prefill pass may take from the window pool.

Rule 23 of docs/explanation/sglang.md (SGLang 0.5.23: SWAPrefillBudget in
mem_cache/prefill_budget.py).
"""

from collections.abc import Callable

from sim.sglang.cache.pass_limit import PassLimit


class WindowBudget(PassLimit):
    """Tokens of the window pool that a pass has reserved.

    A request needs at most a window of tokens there, and while its prompt is computed the tokens of
    the step, too: they are freed afterwards.
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
        return self._available() - self._num_reserved

    def needed(self, extend_len: int, output_len: int, chunk_tokens: int | None) -> int:
        in_step = extend_len if chunk_tokens is None else min(extend_len, chunk_tokens)
        behind = max(in_step - self._window, 0)
        return behind + min(extend_len + output_len, self._window) + self._page_size

    def reserve(self, extend_len: int, output_len: int, chunk_tokens: int | None) -> None:
        self._num_reserved += self.needed(extend_len, output_len, chunk_tokens)

    def fits(
        self, extend_len: int, output_len: int, chunk_tokens: int | None, load_len: int
    ) -> bool:
        return self.needed(extend_len, output_len, chunk_tokens) + load_len < self.left

    def largest_chunk(
        self, extend_len: int, output_len: int, chunk_tokens: int | None, load_len: int
    ) -> int:
        """As in `PassLimit`.

        Only a request that would not fit into an empty pool is cut. Others wait, so that running
        requests keep free memory for their windows.
        """
        if chunk_tokens is None:
            return 0
        if self.needed(extend_len, output_len, chunk_tokens) + load_len < self._pool_tokens:
            return 0
        left = self.left - self.needed(0, output_len, None) - load_len
        return min(chunk_tokens, max(left // self._page_size * self._page_size, 0))
