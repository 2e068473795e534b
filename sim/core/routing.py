"""What routers go by: the worth of cached blocks, what is known of them, and when sessions move."""

from typing import NamedTuple


class TierCredits(NamedTuple):
    """What a cached block is worth in each tier, as a share of a block; 0: it is not looked at."""

    device: float
    host: float
    storage: float


class Knowledge(NamedTuple):
    """How a router learns what servers have cached.

    Attributes:
        events: by events of their caches.
        event_delay_ns: how long each event is under way.
        predicts: what is sent to a server counts as cached there.
        predicted_ttl_ns: for so long; None: until too much else was sent.
        predicted_tokens: so much is remembered for each server; None: as much as its pool holds.
    """

    events: bool
    event_delay_ns: int
    predicts: bool
    predicted_ttl_ns: int | None
    predicted_tokens: int | None


class Spill(NamedTuple):
    """When a session's request goes to the least loaded server in place of the session's own.

    Attributes:
        load_factor: if the session's own has more than this many times the mean of unfinished
            requests, the new one counted ...
        above: ... and more than this number.
        moves: the session's later requests follow it.
    """

    load_factor: float
    above: int
    moves: bool


class ScoreWeights(NamedTuple):
    """Weights of the parts of a server's score, each of which is from 0 to 1.

    Attributes:
        prefix: of the share of the prompt that it has cached.
        queue: of how short its queue is.
        kv_usage: of the share of its KV pool that is not in use.
    """

    prefix: float
    queue: float
    kv_usage: float
