"""Does memory last until everybody is done? For requests of known length (rule 6)."""

from collections.abc import Iterable

from sim.sglang.request import SglangBatch, SglangRequest

_SPARE_TOKENS_A_ROW = 1


class FutureMemory:
    """Looks ahead over one pass: rows finish in order of tokens left, and free what they hold."""

    def __init__(
        self,
        running: SglangBatch,
        ratio: float,
        candidate: SglangRequest,
        admitted: Iterable[SglangRequest],
    ) -> None:
        self._ratio = ratio
        rows = [self._row(request) for request in (candidate, *running.requests, *admitted)]
        self._rows = sorted((row for row in rows if row[0] > 0), key=lambda row: row[0])

    def _row(self, request: SglangRequest) -> tuple[float, int]:
        """(tokens left to generate, tokens held)."""
        ratio = 1.0 if request.spec.ignore_eos else self._ratio
        return request.max_new_tokens * ratio - request.num_generated, request.num_tokens

    def add(self, request: SglangRequest) -> None:
        """Add a further candidate: before the first row with as much left or more.

        If there is none, *before the last row*: SGLang's loop ends there.
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
        """Whether `free_tokens`, and what finishing rows free, cover all that is left."""
        num_freed = 0
        for i, (left, held) in enumerate(self._rows):
            num_rows = len(self._rows) - i
            if free_tokens + num_freed - left * num_rows <= _SPARE_TOKENS_A_ROW * num_rows:
                return False
            num_freed += held
        return True
