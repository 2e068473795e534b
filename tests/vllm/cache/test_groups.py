"""The blocks of groups of layers: what is freed, what is found, and that breaches are noticed."""

import pytest

from sim.core.errors import InvariantError
from sim.core.tokens import SegmentPrompt
from sim.engine.request import OutputTokens
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.single_type_manager import CacheRules, KVCacheSpec
from sim.vllm.check import check_blocks
from sim.vllm.request import NULL, Chunk, RequestBlocks

FULL, WINDOW, STATE = (
    KVCacheSpec("full_attention"),
    KVCacheSpec("sliding_window", 5),
    KVCacheSpec("mamba"),
)
CHUNKED = KVCacheSpec("chunked_local_attention", 8)


class Server:
    """Blocks of four tokens; requests that are computed in the chunks they are given."""

    def __init__(self, *groups, num_blocks=40, interval=0):
        self.memory = KVCacheCoordinator(num_blocks, 4, groups, CacheRules(interval=interval))
        self.requests = {}

    def compute(self, rid, *ends, pieces=None):
        """Compute a request in chunks that end there; returns the tokens that it found."""
        found = 0
        for end in ends:
            self.memory.num_decisions += 1
            if rid not in self.requests:
                prompt = SegmentPrompt(tuple(pieces))
                kv = RequestBlocks(prompt, OutputTokens(None, None))
                hit = self.memory.find_longest_cache_hit(kv, len(prompt))
                found = hit.num_tokens
                chunk = Chunk(found, end, len(prompt))
                assert self.memory.can_admit(hit, chunk, 0, 0)
                self.memory.admit(kv, hit, chunk)
            else:
                kv, start = self.requests[rid]
                self.memory.remove_skipped_blocks(kv, start)
                self.memory.allocate_new_blocks(kv, Chunk(start, end, kv.prompt_len))
            self.memory.cache_blocks(kv, end, kv.prompt_len)
            self.requests[rid] = kv, end
            self.check()
        return found

    def release(self, rid):
        kv, end = self.requests.pop(rid)
        self.memory.free(kv, end)
        self.check()

    def check(self):
        check_blocks(self.memory, self.requests, in_lockstep=False)

    def tables(self, rid):
        """For each group, where the request has blocks."""
        of_groups = self.requests[rid][0].tables
        return [
            "".join(".x"[block != NULL] for block in table.blocks_from(0)) for table in of_groups
        ]


def test_blocks_that_left_the_window_are_free():
    """Token 13 attends to tokens 9 to 13: the first two blocks are free, in that group alone."""
    server = Server(FULL, WINDOW, CHUNKED, STATE)
    server.compute("a", 12, 13, pieces=[(1, 20)])
    assert server.tables("a") == ["xxxx", "..xx", "..xx", "..xx"]
    assert server.memory.num_free_pages == 40 - 4 - 2 - 2 - 2


@pytest.mark.parametrize(
    ("together", "freed"), [(False, [7, 3, 2, 1, 0, 6, 5, 4]), (True, [7, 3, 6, 5, 4, 2, 1, 0])]
)
def test_blocks_of_groups_are_freed_one_by_one_or_together(together, freed):
    """Full blocks behind the others; the two that are not full can be found by nobody."""
    server = Server(FULL, WINDOW, num_blocks=8, interval=4)
    server.compute("a", 15, pieces=[(1, 15)])
    kv, end = server.requests.pop("a")
    server.memory.free(kv, end, together=together)
    assert server.memory.pool.queued_blocks() == freed


@pytest.mark.parametrize(
    ("other", "blocks"),
    [
        (WINDOW, [[0, 1, 3], [2, 4]]),
        (KVCacheSpec("sliding_window", 1), [[0, 1, 2], [3]]),
        (STATE, [[0, 1, 3], [2, 4]]),
        (CHUNKED, [[0, 1, 2], [3]]),
    ],
)
def test_all_groups_get_blocks_for_what_is_loaded_before_any_computes(other, blocks):
    """Eight tokens are loaded; no window of one token, and no chunk, needs them."""
    memory = KVCacheCoordinator(20, 4, (FULL, other), CacheRules())
    kv = RequestBlocks(SegmentPrompt(((1, 12),)), OutputTokens(None, None))
    hit = memory.find_longest_cache_hit(kv, 12)
    memory.admit(kv, hit, Chunk(8, 12, 12))
    tables = [table.blocks_from(0) for table in kv.tables]
    assert [[block for block in table if block != NULL] for table in tables] == blocks


def test_prefix_is_found_as_far_as_all_groups_can_go_on():
    """A window keeps what the end of the prompt needs, unless an interval says more."""
    for interval, expected in ((0, 0), (8, 8), (None, 12)):
        server = Server(FULL, WINDOW, interval=interval)
        server.compute("a", 20, pieces=[(1, 20)])
        server.release("a")
        assert server.compute("b", 30, pieces=[(1, 14), (2, 16)]) == expected
        assert server.compute("c", 20, pieces=[(1, 20)]) == 16


def test_where_prompts_part_is_kept_from_the_second_time_on():
    """The first prompt that parts from another finds nothing; the next ones do."""
    server = Server(FULL, WINDOW)
    for number, expected in enumerate((0, 0, 12, 12)):
        found = server.compute("a", 20, pieces=[(1, 13), (2 + number, 7)])
        server.release("a")
        assert found == expected


def test_state_of_this_step_is_read_in_the_next_one():
    server = Server(FULL, STATE)
    server.compute("a", 16, pieces=[(1, 20)])
    kv = RequestBlocks(SegmentPrompt(((1, 20),)), OutputTokens(None, None))
    hit = server.memory.find_longest_cache_hit(kv, 20)
    assert hit.num_tokens == 16
    assert not server.memory.can_admit(hit, Chunk(16, 20, 20), 0, 0)
    server.memory.num_decisions += 1
    assert server.memory.can_admit(hit, Chunk(16, 20, 20), 0, 0)


def test_hit_may_end_before_the_chunk_that_was_looked_up():
    """Chunks of 7, blocks of 4: token 15 needs nothing before it, but the hit ends at token 12.

    Token 13 attends to tokens 8 to 13, and has no blocks of these, in vLLM too.
    """
    server = Server(KVCacheSpec("chunked_local_attention", 7))
    assert server.compute("a", 13, pieces=[(1, 15)]) == 12
    assert server.tables("a") == ["...x"]


def lose_a_block(server):
    server.memory.pool._free.take(1)


def drop_a_block_in_the_window(server):
    server.requests["a"][0].tables[1].blocks[-1] = NULL


def drop_a_block_in_the_chunk(server):
    server.requests["a"][0].tables[2].blocks[-1] = NULL


def shorten_a_table(server):
    server.requests["a"][0].tables[0].blocks.pop()


def give_a_wrong_hash(server):
    server.memory.pool.hash_of[server.requests["a"][0].tables[0].blocks_from(0)[0]] = 7


def hash_too_early(server):
    hashes = server.requests["a"][0].hashes
    hashes.values = hashes.values[:-1]


def forget_the_tables(server):
    server.requests["a"][0].tables = []


@pytest.mark.parametrize(
    ("breach", "message"),
    [
        (lose_a_block, r"free \+ 8 used \+ 0 reserved blocks are 39, not 40"),
        (drop_a_block_in_the_window, "a lacks a block that its next token attends to"),
        (drop_a_block_in_the_chunk, "a lacks a block that its next token attends to"),
        (shorten_a_table, "requests lack 1 blocks, but 0 are reserved"),
        (give_a_wrong_hash, "a: a block has a wrong hash"),
        (hash_too_early, "a: a block has a hash too early"),
        (forget_the_tables, "a has tokens in KV, but no blocks"),
    ],
)
def test_breach_is_noticed(breach, message):
    server = Server(FULL, WINDOW, CHUNKED)
    server.compute("a", 16, 20, pieces=[(1, 24)])
    breach(server)
    with pytest.raises(InvariantError, match=message):
        server.check()
