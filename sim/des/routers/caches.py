"""What a router goes by when it looks for a prompt in the replicas' caches."""

from sim.core.block_keys import BlockKeys
from sim.core.request import RequestSpec
from sim.core.routing import Knowledge, TierCredits
from sim.core.tokens import TokenIds
from sim.des.routers.kv_index import Hits, KvIndex, SentBlocks
from sim.engine.page_pool import KeysOf

# For a router that is connected to no servers.
_UNCONNECTED_BLOCK_TOKENS = 16


class Caches:
    """The replicas' caches, as far as a router knows them.

    Attributes:
        knowledge: how it learns what they hold.
        credit: what blocks are worth in each tier.
        index: what they hold.
        block_tokens: tokens in a block: the page size of the servers.
        keys_of: makes the keys of a prompt's blocks, as the servers' caches make them.
        keys: those of the latest prompt.
    """

    def __init__(self, knowledge: Knowledge, credit: TierCredits) -> None:
        self.knowledge = knowledge
        self.credit = credit
        self._sent = SentBlocks(knowledge.predicted_ttl_ns) if knowledge.predicts else None
        self.index = KvIndex(knowledge.event_delay_ns, self._sent)
        self.block_tokens = _UNCONNECTED_BLOCK_TOKENS
        self.keys_of: KeysOf = self._keys_of
        self.keys: list[int] = []

    def remember(self, replica: int, pool_tokens: int) -> None:
        """The size of a replica's pool, which may limit how many of its prompts are remembered."""
        if self._sent is not None:
            most = self.knowledge.predicted_tokens or pool_tokens
            self._sent.limit(replica, most // self.block_tokens)

    def look_up(
        self, spec: RequestSpec, num_replicas: int, max_tokens: int | None = None
    ) -> list[Hits]:
        """What each replica has of a prompt that arrives now, or of its first `max_tokens`."""
        now_ns = spec.arrival_ns
        self.index.advance(now_ns)
        self.keys = self.keys_of(spec.prompt.token_ids())
        if max_tokens is not None:
            del self.keys[max_tokens // self.block_tokens :]
        numbers = range(num_replicas)
        return [self.index.hits(self.keys, number, now_ns, self.credit) for number in numbers]

    def sent(self, spec: RequestSpec, replica: int, hits: Hits) -> int:
        """The latest prompt is sent to this replica, which has `hits` of it.

        Returns how many of its tokens the replica will find in its cache.
        """
        if self._sent is not None:
            self._sent.sent(self.keys, replica, spec.arrival_ns)
        # The last token is computed in any case.
        most = (len(spec.prompt) - 1) // self.block_tokens * self.block_tokens
        return max(min(sum(hits) * self.block_tokens, most), 0)

    def _keys_of(self, token_ids: TokenIds) -> list[int]:
        """The keys for a router that hears of no cache."""
        keys: list[int] = BlockKeys(self.block_tokens).of(token_ids).tolist()
        return keys
