"""The work of the requests that a router has sent to a replica and that are not over."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.des.routers.kv_index import num_leading


@dataclass(slots=True)
class _Sent:
    keys: Sequence[int]
    prefill_tokens: int


class ActiveWork:
    """What one replica has to do, as Dynamo's router reckons it.

    Attributes:
        prefill_tokens: prompt tokens to compute for requests without a first token, as many as
            each request lacked in the cache when it was sent.
        num_blocks: full prompt blocks of the requests that are not over; a block that several
            prompts share counts once.
    """

    def __init__(self) -> None:
        self.prefill_tokens = 0
        self._sent: dict[str, _Sent] = {}
        # How many requests each block belongs to.
        self._num_users: dict[int, int] = {}

    @property
    def num_blocks(self) -> int:
        return len(self._num_users)

    def num_blocks_with(self, keys: Sequence[int]) -> int:
        """What `num_blocks` would be with one more request, whose blocks have these keys."""
        return len(self._num_users) + len(keys) - num_leading(keys, self._num_users)

    def add(self, rid: str, keys: Sequence[int], prefill_tokens: int) -> None:
        """A request is sent to the replica, which has to compute `prefill_tokens` of its prompt."""
        self._sent[rid] = _Sent(keys, prefill_tokens)
        self.prefill_tokens += prefill_tokens
        for key in keys:
            self._num_users[key] = self._num_users.get(key, 0) + 1

    def prefilled(self, rid: str) -> None:
        """A request has its first token."""
        sent = self._sent[rid]
        self.prefill_tokens -= sent.prefill_tokens
        sent.prefill_tokens = 0

    def over(self, rid: str) -> None:
        """A request has ended."""
        self.prefilled(rid)
        for key in self._sent.pop(rid).keys:
            if self._num_users[key] > 1:
                self._num_users[key] -= 1
            else:
                del self._num_users[key]
