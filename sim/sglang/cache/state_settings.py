"""Settings of the pool of states of state-space and linear attention layers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Settings of the pool that holds the states of requests and of cached prefixes.

    Attributes:
        num_states: states that the pool has room for.
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
