"""Predicts whether memory lasts until all requests end, for requests of known length (rule 6)."""

from collections.abc import Iterable, Sequence

from sim.sglang.request import SglangRequest

_SPARE_TOKENS_PER_ROW = 1


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
        """Whether `free_tokens` tokens and the memory freed by ending rows cover all growth."""
        num_freed = 0
        for i, (left, held) in enumerate(self._rows):
            num_rows = len(self._rows) - i
            if free_tokens + num_freed - left * num_rows <= _SPARE_TOKENS_PER_ROW * num_rows:
                return False
            num_freed += held
        return True
