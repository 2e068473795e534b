"""How much KV a decode server may allocate for requests whose prompts are computed elsewhere.

Source: SGLang 0.5.23, `_allocatable_token_budgets`, `_required_admission_tokens` and
`_prealloc_required_tokens` of `DecodePreallocQueue` in disaggregation/decode.py.
"""

from collections.abc import Callable, Iterable, Sequence

from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangRequest

# The output tokens of a row that are known.
CountOutputs = Callable[[SglangRequest], int]


class DecodeRoom:
    """Room for new KV, less what running requests may still need.

    Every request that holds KV has `num_reserved_decode_tokens` tokens reserved for its next
    outputs. Example: a pool of 1,000 free tokens, two requests that hold KV, 100 reserved for each.
    A prompt of 600 tokens fits: it needs 600 + 100 of 1,000 - 200. One of 701 does not.
    """

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager) -> None:
        self._kv = kv
        self._reserved = config.num_reserved_decode_tokens
        self._clip = config.clip_max_new_tokens

    def required(self, num_tokens: int) -> int:
        """Tokens that must be free for KV of `num_tokens` tokens: whole pages and the reserve."""
        return self._kv.ceil_page(num_tokens) + self._reserved

    def demand(self, request: SglangRequest, num_cached: int, num_retractable: int) -> int:
        """Tokens that must be free for a new request.

        Args:
            request: the request.
            num_cached: tokens of its prompt that are cached here.
            num_retractable: tokens of the running requests, which could be retracted for it.
        """
        own = self.required(request.prompt_len) - num_cached
        return max(own, self._whole(request) - num_cached - num_retractable)

    def ever_fits(self, prompt_len: int, max_new_tokens: int) -> bool:
        """Whether a request of this size would fit into the empty pool."""
        whole = prompt_len + min(max_new_tokens, self._clip)
        return max(self.required(prompt_len), whole) <= self._kv.pool_tokens

    def budget(
        self,
        num_active: int,
        rows: Sequence[SglangRequest],
        num_retractable: int | None,
        retracted: Iterable[int],
    ) -> int:
        """Tokens that may be allocated.

        Args:
            num_active: requests that hold KV.
            rows: the running requests.
            num_retractable: their tokens; None: what the largest of them needs does not count.
            retracted: tokens of each retracted request that has to come first.
        """
        need = 0
        if num_retractable is not None and rows:
            need = self._largest(rows) - num_retractable
        free = self._kv.available_tokens - max(self._reserved * num_active, need)
        return free - sum([self.required(num_tokens) for num_tokens in retracted])

    def only_shrinks(
        self, request: SglangRequest, num_active: int, rows: Sequence[SglangRequest], tokens: int
    ) -> bool:
        """Whether decode steps can only make a request fit less.

        Running requests grow by a token a step. They take pages, and with `tokens` retractable
        tokens more, less has to be kept free for the largest of them. The first weighs more if
        it is not the largest one's need that counts, neither in the budget nor in the demand.
        """
        reserved = self._reserved * num_active
        largest = self._largest(rows) if rows else 0
        own = self.required(request.prompt_len)
        return largest - tokens <= reserved and self._whole(request) - tokens <= own

    def _whole(self, request: SglangRequest) -> int:
        """Tokens of a prompt and its longest output, as far as admission looks ahead."""
        return request.prompt_len + min(request.max_new_tokens, self._clip)

    def _largest(self, rows: Sequence[SglangRequest]) -> int:
        return max([self._whole(row) for row in rows])
