"""Settings of the pool of states of state-space and linear attention layers."""

from dataclasses import dataclass

from sim.sglang.cache.request_kv import StateSlot


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Settings of the pool that holds the states of requests and of cached prefixes.

    Attributes:
        num_states: size of the pool.
        num_tracked: states that a request has beside its own: the latest ones that the prefix cache
            may keep. 0: no such states; the cache gets a copy of the request's own state.
        checkpoint_tokens: with tracked states, tokens between the states that a prefill can track.
        track_tokens: with tracked states, tokens between the states that decode steps track.
        kernel_tokens: with tracked states, tokens between the states that the kernels compute.
    """

    num_states: int
    num_tracked: int
    checkpoint_tokens: int
    track_tokens: int
    kernel_tokens: int

    def last_tracked(self, slot: StateSlot, num_computed: int) -> int:
        """Tokens before the latest state that a request has tracked; 0: none to insert.

        `num_computed` of its tokens are known to be computed. Decode steps track every multiple of
        `track_tokens` behind its last prefill, but for mixed steps; with drafts, `verified` has
        noted what they track.
        """
        if self.num_tracked and not slot.verified_len:
            last = num_computed // self.track_tokens * self.track_tokens
            while last in slot.untracked:
                last -= self.track_tokens
            if last > slot.prefilled_len:
                return last
        return slot.tracked_len
