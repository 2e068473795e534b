"""How much KV a decode server may allocate for prompts that are computed elsewhere, in one pool.

Source: SGLang 0.5.23, `_required_admission_tokens`, `_prealloc_required_tokens` and
`_allocatable_token_budgets` of `DecodePreallocQueue` in disaggregation/decode.py.
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
        # Of the running requests of a pass: their tokens, and the most that one of them may need.
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

        Running requests grow by a token a step. They take pages, and with each more of their tokens
        retractable, less has to be kept free for the largest of them. The pages
        decide if the largest one's need sets neither what is kept free nor what the request needs.
        """
        if self.gives_back or self._most_needed > self._kept_free(num_active):
            return False
        whole = self._whole(request.prompt_len, request.max_new_tokens) - self._num_retractable
        return whole <= self._required(request.prompt_len)
