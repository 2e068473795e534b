"""The script of a simulated request: hidden from the scheduler, read by the executor alone."""

from dataclasses import dataclass

from sim.core.tokens import TokenIds, stream_token_ids


@dataclass(frozen=True, slots=True)
class OutputScript:
    """What a request will generate. Only the executor may read it.

    The `num_tokens`-th token ends the output, unless `max_new_tokens` comes first or the request
    ignores end tokens. Token k is token k of stream `seed`.
    """

    num_tokens: int
    seed: int

    def token_ids(self, num_tokens: int) -> TokenIds:
        return self.tokens_between(0, num_tokens)

    def tokens_between(self, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop`; int64."""
        return stream_token_ids(self.seed, start, stop)
