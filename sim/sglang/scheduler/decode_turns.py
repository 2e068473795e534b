"""Decoding by turns: where few rows may decode at once, running requests take turns at it."""

from sim.sglang.request import SglangBatch, SglangRequest


class DecodeTurns:
    """Keeps a decode step to `most` rows; the others rest, and hold their KV meanwhile.

    Turns go round: who has rested longest decodes next. Between a decision and the next one the
    running batch holds the rows whose turn it is; while one is made it holds all.

    Attributes:
        resting: running requests whose turn it is not, longest rest first.
    """

    def __init__(self, running: SglangBatch, most: int | None) -> None:
        self._running = running
        self._most = most
        self.resting: list[SglangRequest] = []

    def gather(self) -> None:
        """All running requests are in the running batch again, those that rested first."""
        if self.resting:
            self._running.prepend(self.resting)
            self.resting = []

    def rest(self) -> None:
        """Leave in the running batch whose turn it is."""
        if self._most is not None and len(self._running) > self._most:
            self.resting = self._running.requests[self._most :]
            self._running.remove(self.resting)
