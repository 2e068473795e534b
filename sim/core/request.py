"""What a client asks for, and the scheduler's state of it."""

from dataclasses import dataclass
from enum import Enum

from sim.core.tokens import Prompt


class Status(Enum):
    """Where a request is. Legal moves: docs/invariants.md, INV-2."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, eq=False)
class RequestSpec:
    """What a client asks for. Says nothing of the output's true length: the executor knows that.

    Attributes:
        rid: unique name.
        arrival_ns: when it reaches the server.
        prompt: expanded on demand.
        max_new_tokens: the client's limit on generated tokens, >= 1.
        priority: larger goes first unless the scheduler is told otherwise; None: goes last. On
            vLLM's servers smaller goes first, and None is 0.
        ignore_eos: run to `max_new_tokens` whatever is generated.
        predicted_output_tokens: a guess of the output length for `sjf`; None: `max_new_tokens`.
        tenant: whose request it is, for per-tenant metrics.
        session: the conversation it is a turn of, for routers; empty: none.
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
