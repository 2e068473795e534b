"""The part of the KV memory for state-space and linear attention layers: a pool of states.

Follows SGLang 0.5.23 (mem_cache/unified_cache/components/mamba.py, mem_cache/memory_pool.py,
`HybridReqToTokenPool`, and mem_cache/allocation.py; docs/explanation/sglang.md, rules 30 to 33).
Those layers keep one state for all tokens before, instead of KV for each. The pool has the states
of running requests and those of cached prefixes: some nodes of the tree have the state at their
end, and a prefix can be used if its last node has one. A unit of the pool is a state.
"""

from collections.abc import Sequence

from sim.core.errors import InputError, require
from sim.sglang.cache.part import MemoryPart, PrefillRows
from sim.sglang.cache.pool_tree import PoolTree, UnitPool
from sim.sglang.cache.settings import StateSettings
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import PoolDatum, PrefixMatch, RadixNode
from sim.sglang.request import RequestKV, SglangRequest, StateSlot


class StateTree(PoolTree):
    """What the prefix cache knows of states."""

    divides = False

    def __init__(self, tree: RadixCache, pool: UnitPool) -> None:
        # Of a prefix, the state at its end alone is used.
        super().__init__(tree, pool, span=1, used_span=1)

    def datum(self, node: RadixNode) -> PoolDatum:
        return node.state

    def datum_of_copy(self, node: RadixNode) -> PoolDatum:
        return node.host.state

    def new_datum_of_copy(self, node: RadixNode) -> None:
        node.host.state = PoolDatum(node)

    def num_units(self, node: RadixNode) -> int:
        return 1

    def nodes_to_copy(self, node: RadixNode) -> list[RadixNode]:
        return [node] if node.state.holds and not node.host.state.holds else []

    def allows_end(self, node: RadixNode, num_tokens: int) -> bool:
        return node.state.holds and num_tokens == node.num_tokens

    def allows_loaded_end(self, node: RadixNode, num_tokens: int) -> bool:
        return self.is_held(node) and num_tokens == node.num_tokens

    def new_node(self, node: RadixNode) -> None:
        node.state = PoolDatum(node)
        if self.copies is not None:
            self.new_datum_of_copy(node)

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """The state, and the locks on it, stay with the lower part."""
        self.new_node(upper)

    def give(self, node: RadixNode, *, is_new: bool) -> bool:
        """Offer the state at the end of a node, right after an insertion that ended there.

        `is_new`: the insertion has made the node.

        Returns whether the node took the state: not if it has one.
        """
        if not is_new:
            self.tree.use(node)
        if node.state.holds:
            self.used(node)
            return False
        self.hold(node)
        return True


class StatePart(MemoryPart):
    """The states of requests."""

    def __init__(
        self,
        settings: StateSettings,
        tree: StateTree,
        *,
        drafts: bool,
        goes_with_tails: bool = False,
    ) -> None:
        """Make the part.

        Args:
            settings: the pool's.
            tree: what the prefix cache knows of states.
            drafts: decode steps verify drafts of each row.
            goes_with_tails: there are windows, too, of which decode servers get the tails of
                prompts alone (`sim.sglang.cache.preallocation`).
        """
        super().__init__(tree.pool, tree)
        self._settings = settings
        self._pool = tree.pool
        self._tree = tree
        self._drafts = drafts
        self._goes_with_tails = goes_with_tails
        self._num_needed = 1 + settings.num_tracked

    # ---- requests ------------------------------------------------------------------------------

    def join(self, kv: RequestKV) -> None:
        kv.state = StateSlot()

    def found(self, kv: RequestKV, match: PrefixMatch) -> None:
        grid = self._settings.checkpoint_tokens
        branch_len = match.full_len // grid * grid
        kv.state.branch_len = branch_len if branch_len > match.num_tokens + kv.host_len else 0

    def prepare(self, kv: RequestKV) -> None:
        """Get the candidate a state of its own, to copy the prefix's into."""
        slot, end = kv.state, kv.found_on_host or kv.found
        if end is not None and end.state.holds and not slot.num_states:
            self._take_for_prefix(slot, end)

    def _take_for_prefix(self, slot: StateSlot, end: RadixNode) -> None:
        """Get a state, and evict another one than that of this prefix for it."""
        if not self._pool.free_units:
            lock = self._tree.tree.lock_with_parts(end)
            self._tree.evict_until_free(1)
            self._tree.tree.unlock_with_parts(lock)
        self._take(slot, 1)

    def begin_load(self, kv: RequestKV, end: RadixNode) -> None:
        slot = kv.state
        slot.for_load = not (slot.num_states or end.state.holds)
        if slot.for_load:
            self._take_for_prefix(slot, end)

    def end_load(self, kv: RequestKV, end: RadixNode, *, is_loaded: bool) -> None:
        if kv.state.for_load and not is_loaded:
            self.refuse(kv)

    def refuse(self, kv: RequestKV) -> None:
        self._pool.free(kv.state.num_states)
        kv.state.num_states = 0

    def lock(self, kv: RequestKV) -> None:
        if kv.locked is not None:
            self._tree.lock_node(kv.locked)

    def unlock(self, kv: RequestKV) -> None:
        slot = kv.state
        if kv.locked is not None and not slot.is_unlocked:
            self._tree.unlock_node(kv.locked)
        slot.is_unlocked = False

    def locked_for_transfer(self, kv: RequestKV) -> None:
        """The state is copied already. With the window's lock, SGLang gives up the state's, too.

        SGLang 0.5.23: `dec_swa_lock_only` in mem_cache/unified_cache/unified_tree_core.py.
        """
        if self._goes_with_tails:
            self.unlock(kv)
            kv.state.is_unlocked = True

    def _take(self, slot: StateSlot, num_states: int) -> None:
        if self._pool.free_units < num_states:
            raise InputError(
                "all states are in use: SGLang would stop here (_alloc_mamba_slot in"
                " mem_cache/unified_cache/components/mamba.py)",
                key=("scheduler", "max_mamba_cache_size"),
            )
        self._pool.take(num_states)
        slot.num_states += num_states

    def end(self, request: SglangRequest) -> None:
        request.kv.state.ended_len = request.num_tokens - 1

    def release(self, kv: RequestKV, seq_len: int) -> None:
        self.refuse(kv)
        slot = kv.state
        slot.branch_len = slot.tracked_len = slot.prefilled_len = slot.ended_len = 0
        slot.earlier_len = slot.verified_len = 0
        slot.untracked.clear()

    def num_held(self, kv: RequestKV, seq_len: int) -> int:
        """Running requests have all the states that they need.

        Others have none, or on a decode server one: a copy of the state of a cached prefix, made
        when the request was looked at and did not fit.
        """
        num_states = kv.state.num_states
        if kv.locked is None:
            require(num_states <= 1, "a request without KV has several states")
        else:
            require(num_states == self._num_needed, "a request has too many or too few states")
        return num_states

    # ---- growth --------------------------------------------------------------------------------

    def used_share(self) -> float:
        num_states = self._settings.num_states
        return (num_states - self._pool.free_units - self._tree.evictable_units) / num_states

    def can_hold(self, kv: RequestKV) -> bool:
        """SGLang 0.5.23: `ensure_mamba_capacity` in mem_cache/allocation.py."""
        num_missing = self._num_needed - kv.state.num_states
        self._tree.evict_until_free(num_missing)
        return self._pool.free_units >= num_missing

    def allocated(self, kv: RequestKV, end: int) -> None:
        slot = kv.state
        self._take(slot, self._num_needed - slot.num_states)
        slot.prefilled_len = end

    def begin_extend(self, rows: PrefillRows) -> None:
        self._tree.evict_until_free(
            sum([self._num_needed - kv.state.num_states for kv, _, _ in rows])
        )
        for kv, prefix_len, extend_len in rows:
            slot = kv.state
            self._take(slot, self._num_needed - slot.num_states)
            slot.prefilled_len = prefix_len + extend_len
            if self._settings.num_tracked:
                self._track_prefill(slot, prefix_len, extend_len)

    def _track_prefill(self, slot: StateSlot, prefix_len: int, extend_len: int) -> None:
        """A prefill tracks the last state that it can, or the one where its prompt branches off."""
        settings = self._settings
        if extend_len < settings.checkpoint_tokens:
            return
        tracked = extend_len // settings.checkpoint_tokens * settings.checkpoint_tokens
        kernel = extend_len // settings.kernel_tokens * settings.kernel_tokens
        slot.tracked_len = prefix_len + tracked
        end = prefix_len + (extend_len if kernel == tracked else tracked + 1)
        branch = slot.branch_len
        if prefix_len < branch < end and not (branch - prefix_len) % settings.checkpoint_tokens:
            slot.tracked_len = branch

    def mixed(self, rows: Sequence[SglangRequest]) -> None:
        """A mixed step computes states of its rows, but tracks none."""
        settings = self._settings
        if settings.num_tracked:
            for row in rows:
                if not row.seq_len % settings.track_tokens:
                    row.kv.state.untracked.append(row.seq_len)

    def verified(self, kv: RequestKV, num_computed: int, num_sampled: int) -> None:
        """A step that passes a multiple of `track_tokens` tracks the state there.

        SGLang 0.5.23: `_mamba_check_track_boundary` and `_mamba_prefix_cache_update` in
        managers/scheduler_components/batch_result_processor.py.
        """
        slot, interval = kv.state, self._settings.track_tokens
        slot.verified_len = num_computed
        if self._settings.num_tracked:
            last = num_computed // interval * interval
            if last > num_computed - num_sampled:
                slot.earlier_len, slot.tracked_len = slot.tracked_len, last

    # ---- insertions ----------------------------------------------------------------------------

    def end_of_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> int:
        """With tracked states, the cache gets tokens up to the latest one, or none.

        If the request goes on, it needs a state in place of the one that the cache takes.
        """
        slot = kv.state
        end = self._end(slot, num_tokens, is_finished=is_finished)
        slot.tracked_len = slot.earlier_len = 0
        slot.spare = slot.took = False
        if end and not is_finished:
            self._tree.evict_until_free(1)
            self._take(slot, 1)
            slot.spare = True
        return end

    def _end(self, slot: StateSlot, num_tokens: int, *, is_finished: bool) -> int:
        settings = self._settings
        if is_finished and self._drafts:
            return self._end_of_drafts(slot, num_tokens)
        if not settings.num_tracked:
            return num_tokens
        # Under overlap, a step beyond the end may run: the state after it does not count.
        return settings.last_tracked(slot, slot.ended_len if is_finished else 0)

    def _end_of_drafts(self, slot: StateSlot, num_tokens: int) -> int:
        """The last of the request's states that does not lie behind its output.

        A step may have accepted more tokens than the output has. With tracked states, the one
        before the latest is left if the request keeps two; without them, the request's own state is
        of no use then. SGLang 0.5.23: `_select_finished_checkpoint` in
        mem_cache/unified_cache/components/mamba.py, and `_mamba_can_cache_finished_req` in
        managers/scheduler_components/batch_result_processor.py.
        """
        if not self._settings.num_tracked:
            return num_tokens if slot.verified_len <= num_tokens else 0
        if slot.tracked_len <= num_tokens:
            return slot.tracked_len
        keeps_earlier = self._settings.num_tracked > 1 and slot.earlier_len <= num_tokens
        return slot.earlier_len if keeps_earlier else 0

    def inserted(self, kv: RequestKV, node: RadixNode, *, is_new: bool) -> None:
        kv.state.took = self._tree.give(node, is_new=is_new)

    def end_insertion(self, kv: RequestKV, num_tokens: int, *, is_finished: bool) -> None:
        slot = kv.state
        if slot.took:
            slot.num_states -= 1
        elif slot.spare:
            slot.num_states -= 1
            self._pool.free(1)
