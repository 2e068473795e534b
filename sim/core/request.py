"""What a client asks for, and the states a request goes through."""

from dataclasses import dataclass
from enum import Enum

from sim.core.tokens import Prompt


class Status(Enum):
    """The state of a request. Legal moves: docs/explanation/invariants.md, INV-2."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, eq=False)
class RequestSpec:
    """What a client asks for. Only the executor knows how long the output really is.

    Attributes:
        rid: unique name.
        arrival_ns: when it reaches the server.
        prompt: made into token ids on demand.
        max_new_tokens: the client's limit on generated tokens, >= 1.
        priority: the scheduler family defines whether larger or smaller values go first, and what
            None means.
        ignore_eos: generate `max_new_tokens`, even after an end token.
        predicted_output_tokens: what the policy `sjf` takes the output length to be; None:
            `max_new_tokens`.
        tenant: whose request it is, for per-tenant metrics.
        session: the conversation that the request is a turn of, for routers; empty: there is none.
        warm_up: the request only warms the server up; no metric counts it.
    """

    rid: str
    arrival_ns: int
    prompt: Prompt
    max_new_tokens: int
    priority: int | None = None
    ignore_eos: bool = False
    predicted_output_tokens: int | None = None
    tenant: str = ""
    session: str = ""
    warm_up: bool = False
