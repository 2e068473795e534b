"""A running batch whose rows do not move in lockstep: with drafts, rows get unequal numbers."""

from collections.abc import Collection, Sequence

from sim.engine.running_batch import R, RowNames, RunningBatch


class IndependentRows(RunningBatch[R]):
    """Rows whose lengths are their own: the batch's counters stay 0.

    What all rows need together is computed anew each time, and there is no fast-forward.
    """

    def remove(self, leaving: Collection[R]) -> None:
        if leaving:
            for request in leaving:
                request.leave()
            gone = set(map(id, leaving))
            self._set([request for request in self.requests if id(request) not in gone])

    def _set(self, requests: list[R], joining: Sequence[R] = ()) -> None:
        self.requests = requests
        self.rids = RowNames(requests)
        for request in joining:
            request.join(self)

    def reserved_tokens(self, clip: int, ratio: float, known_ratio: float = 1.0) -> float:
        reserved = 0.0
        for request in self.requests:
            left = min(request.max_new_tokens - request.num_generated, clip)
            reserved += left * (known_ratio if request.spec.ignore_eos else ratio)
        return reserved

    def rows_at_limit(self, num_tokens_ahead: int = 0) -> list[R]:
        return [
            request
            for request in self.requests
            if request.num_generated + num_tokens_ahead >= request.max_new_tokens
        ]
