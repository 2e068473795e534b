"""The block manager against vLLM's rules in their plainest form, by hypothesis' state machine.

The model names every block when it is full, by all tokens up to its end, and keeps the free ones in
a list. The memory names blocks only when they are looked for, and must find the same ones.
"""

from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.core.tokens import ArrayPrompt, BlockPrompt, SegmentPrompt
from sim.engine.request import OutputTokens
from sim.vllm.cache.kv_cache_coordinator import FULL_ATTENTION, KVCacheCoordinator
from sim.vllm.cache.single_type_manager import CacheRules
from sim.vllm.check import check_blocks
from sim.vllm.request import Chunk, RequestBlocks

_NUM_BLOCKS = 16
_SIZE = 2

# Few symbols, so that sequences share prefixes of many lengths; the first ones are the prompt.
sequences = st.lists(st.integers(0, 1), min_size=2, max_size=16)


class PlainPool:
    """The rules of vLLM's pool, block by block."""

    def __init__(self):
        self.free = list(range(_NUM_BLOCKS))
        self.num_users = [0] * _NUM_BLOCKS
        # What each named block holds, in order of naming.
        self.contents = {}

    def take(self):
        block = self.free.pop(0)
        self.contents.pop(block, None)
        self.num_users[block] = 1
        return block

    def use(self, block):
        if not self.num_users[block]:
            self.free.remove(block)
        self.num_users[block] += 1

    def give_back(self, blocks, uncached_first):
        """The last block first, to the end of the queue; those that hold nothing to its front."""
        first = []
        for block in reversed(blocks):
            self.num_users[block] -= 1
            if not self.num_users[block]:
                queue = first if uncached_first and block not in self.contents else self.free
                queue.append(block)
        self.free = first + self.free

    def find(self, tokens, most):
        found = []
        for end in range(_SIZE, most * _SIZE + 1, _SIZE):
            content = tuple(tokens[:end])
            block = next((b for b, held in self.contents.items() if held == content), None)
            if block is None:
                break
            found.append(block)
        return found


@dataclass(eq=False)
class Row:
    """A request: all its tokens, the length of its prompt, and how many tokens have blocks."""

    tokens: list
    prompt_len: int
    num_known: int
    seq_len: int = 0
    blocks: list = field(default_factory=list)
    num_hashed: int = 0
    kv: object = None

    @property
    def is_prefilling(self):
        return self.seq_len < self.fill_len

    fill_len: int = 0


class BlockMachine(RuleBasedStateMachine):
    """Decisions of a server: rows advance together, others are admitted, preempted, finished."""

    lag = 0
    uncached_first = True

    def __init__(self):
        super().__init__()
        rules = CacheRules(reuses_uncached_first=self.uncached_first)
        self.memory = KVCacheCoordinator(_NUM_BLOCKS, _SIZE, FULL_ATTENTION, rules)
        self.plain = PlainPool()
        self.running = []
        self.waiting = []

    @initialize(drawn=st.lists(st.tuples(sequences, st.integers(1, 9)), min_size=2, max_size=6))
    def some_requests_wait(self, drawn):
        for tokens, prompt_len in drawn:
            self.arrives(tokens, prompt_len)

    @rule(tokens=sequences, prompt_len=st.integers(1, 9))
    def arrives(self, tokens, prompt_len):
        prompt_len = min(prompt_len, len(tokens))
        prompt, output = self.prompt(tokens[:prompt_len]), np.array(tokens[prompt_len:])
        row = Row([*prompt.token_ids().tolist(), *tokens[prompt_len:]], prompt_len, prompt_len)
        outputs = OutputTokens(lambda n: output[:n], lambda start, stop: output[start:stop])
        row.kv = RequestBlocks(prompt, outputs)
        self.waiting.append(row)

    def prompt(self, symbols):
        return ArrayPrompt(np.array(symbols))

    @rule(chunk=st.integers(1, 7), most=st.integers(0, 3))
    def decide(self, chunk, most):
        """A step: each row gets a token, prompts get a chunk; then some requests are admitted."""
        for row in list(self.running):
            if not row.is_prefilling and row.num_known >= len(row.tokens):
                self.leave(row, is_over=True)
        self.memory.num_decisions += 1
        self.advanced = []
        for row in list(self.running):
            if row in self.running:
                self.advance(row, chunk)
        for _ in range(min(most, len(self.waiting))):
            if not self.admit(self.waiting[0], chunk):
                break

    def advance(self, row, chunk):
        decodes = not row.is_prefilling
        end = row.seq_len + (1 if decodes else min(chunk, row.fill_len - row.seq_len))
        num_new = -(-end // _SIZE) - len(row.blocks)
        while num_new > len(self.plain.free):
            victim = self.running[-1]
            self.leave(victim, is_over=False, decisions_ago=int(victim not in self.advanced))
            if victim is row:
                return
        row.blocks += [self.plain.take() for _ in range(num_new)]
        if decodes:
            self.memory.reserve_pages(num_new)
            row.num_known += 1
            row.seq_len = end
            (span,) = self.memory.spans(row.kv, end)
            assert span.ids.tolist() == row.blocks
        else:
            self.memory.allocate_new_blocks(row.kv, Chunk(row.seq_len, end, row.fill_len))
            self.memory.cache_blocks(row.kv, end, row.num_known)
            row.seq_len = end
        self.advanced.append(row)
        self.name(row)

    def admit(self, row, chunk):
        hit = self.memory.find_longest_cache_hit(row.kv, row.num_known)
        found = hit.blocks[0].tolist()
        assert found == self.plain.find(row.tokens, (row.num_known - 1) // _SIZE)
        end = min(len(found) * _SIZE + chunk, row.num_known)
        num_new = -(-end // _SIZE) - len(found)
        num_needed = num_new + sum(not self.plain.num_users[block] for block in found)
        fits = num_needed <= len(self.plain.free)
        part = Chunk(hit.num_tokens, end, row.num_known)
        assert self.memory.can_admit(hit, part, 0, 0) == fits
        if not fits:
            # If not, it is not looked up anew until another one is admitted.
            self.memory.may_find_more(row.kv, hit)
            return False
        self.memory.admit(row.kv, hit, part, lambda: self.catch_up(row))
        self.memory.cache_blocks(row.kv, end, row.num_known)
        for block in found:
            self.plain.use(block)
        row.blocks = found + [self.plain.take() for _ in range(num_new)]
        row.num_hashed, row.seq_len, row.fill_len = len(found), end, row.num_known
        self.waiting.remove(row)
        self.running.append(row)
        self.name(row)
        return True

    def num_cached(self, row):
        """Without lag, a token's block is named with the decision that computes it."""
        decoded = row.seq_len > row.fill_len
        return max(row.seq_len - self.lag, row.fill_len) if decoded else row.seq_len

    def catch_up(self, row, decisions_ago=0):
        self.memory.cache_decoded(row.kv, self.num_cached(row), decisions_ago=decisions_ago)

    def name(self, row):
        for index in range(row.num_hashed, self.num_cached(row) // _SIZE):
            self.plain.contents[row.blocks[index]] = tuple(row.tokens[: (index + 1) * _SIZE])
            row.num_hashed = index + 1

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_over=st.booleans())
    def leaves(self, data, is_over):
        self.leave(data.draw(st.sampled_from(self.running)), is_over)

    def leave(self, row, is_over, decisions_ago=0):
        self.running.remove(row)
        self.catch_up(row, decisions_ago)
        self.memory.free(row.kv, row.seq_len)
        self.plain.give_back(row.blocks, self.uncached_first)
        row.blocks, row.num_hashed, row.seq_len = [], 0, 0
        if not is_over:
            self.waiting.insert(0, row)

    @rule(tokens=sequences)
    def looks(self, tokens):
        """A request looks for its prefix and is not admitted."""
        request = RequestBlocks(self.prompt(tokens), OutputTokens(None, None))
        tokens = request.ids(0, len(tokens)).tolist()
        found = self.plain.find(tokens, (len(tokens) - 1) // _SIZE)
        assert self.memory.find_longest_cache_hit(request, len(tokens)).blocks[0].tolist() == found

    @invariant()
    def the_queue_is_the_plain_one(self):
        assert self.memory.pool.queued_blocks() == self.plain.free
        assert self.memory.num_free_pages == len(self.plain.free)

    @invariant()
    def blocks_are_sound(self):
        held = {str(i): (row.kv, row.seq_len) for i, row in enumerate(self.running)}
        check_blocks(self.memory, held, in_lockstep=True)


class LaggingBlockMachine(BlockMachine):
    """The token of a decode row is known one decision late. Rules of older versions."""

    lag = 1
    uncached_first = False


class NamedBlockMachine(BlockMachine):
    """Prompts that are alike take over each other's hashes: of streams, and of blocks with ids."""

    def prompt(self, symbols):
        if symbols[0]:
            return BlockPrompt(np.array(symbols), 1, len(symbols))
        return SegmentPrompt(tuple((s, len([*same])) for s, same in groupby(symbols)))


_SETTINGS = settings(stateful_step_count=40)

TestBlockManager = BlockMachine.TestCase
TestBlockManager.settings = _SETTINGS
TestBlockManagerLagging = LaggingBlockMachine.TestCase
TestBlockManagerLagging.settings = _SETTINGS

TestBlockManagerNamed = NamedBlockMachine.TestCase
TestBlockManagerNamed.settings = _SETTINGS
