"""Events of the block pool: equal blocks count as one."""

import numpy as np

from sim.core.tokens import ArrayPrompt
from sim.engine.request import OutputTokens
from sim.vllm.cache.block_pool import BlockEvents
from sim.vllm.request import RequestBlocks


class Held:
    """What a listener is told."""

    def __init__(self):
        self.keys = []

    def stored(self, keys):
        self.keys += keys

    def removed(self, keys):
        for key in keys:
            self.keys.remove(key)


def request(blocks, *tokens):
    kv = RequestBlocks(ArrayPrompt(np.array(tokens, dtype=np.int64)), OutputTokens(None, None))
    return kv, blocks


def test_events_of_equal_blocks_are_one_until_the_last_is_taken():
    """Two requests with the same first block, which is reported once and leaves with its last."""
    held = Held()
    events = BlockEvents(held, 2)
    events.filled(*request([10, 11], 1, 2, 3, 4), 2)
    first, second = held.keys
    events.filled(*request([20, 21], 1, 2, 5, 6), 2)
    assert held.keys[:2] == [first, second]
    assert len(held.keys) == 3
    events.taken([10, 11, 99])
    assert first in held.keys
    assert second not in held.keys
    events.taken([20])
    assert first not in held.keys
    assert len(held.keys) == 1


def test_events_of_blocks_that_a_request_found_are_not_repeated():
    """It reports the blocks that it has filled itself; a second report tells nothing."""
    held = Held()
    events = BlockEvents(held, 2)
    events.filled(*request([10], 1, 2), 1)
    events.filled(*request([10, 30], 1, 2, 7, 8), 2)
    events.filled(*request([10, 30], 1, 2, 7, 8), 2)
    assert len(held.keys) == len(set(held.keys)) == 2
