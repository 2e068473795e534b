"""What a client asks for, and the states a request goes through."""

from enum import Enum

from sim.core.tokens import Prompt


class Status(Enum):
    """The state of a request. Legal moves: docs/explanation/invariants.md, INV-2."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"


class RequestSpec:
    """What a client asks for. Only the executor knows how long the output really is.

    Only code that has just made a request, or a `copy` of one, may change it.

    Attributes:
        rid: the request's id, unique in a run.
        arrival_ns: when it reaches the server.
        prompt: makes its token ids on demand.
        max_new_tokens: the client's limit on generated tokens, >= 1.
        priority: the scheduler family defines whether larger or smaller values go first, and what
            None means.
        ignore_eos: generate `max_new_tokens`, even after an end token.
        predicted_output_tokens: the output length that the policy `sjf` goes by; None:
            `max_new_tokens`.
        tenant: whose request it is, for per-tenant metrics.
        session: the conversation that the request is a turn of, for routers; empty: there is none.
        warm_up: the request only warms the server up; no metric counts it.
        gives_up_ns: how long after its arrival the client gives up; None: it waits for ever.
        calls_tool: its answer ends in a tool call. A scheduler may read it once the answer has
            ended, as a server reads it out of the answer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - an argument for each field
        self,
        rid: str,
        arrival_ns: int,
        prompt: Prompt,
        max_new_tokens: int,
        priority: int | None = None,
        ignore_eos: bool = False,
        predicted_output_tokens: int | None = None,
        tenant: str = "",
        session: str = "",
        warm_up: bool = False,
        gives_up_ns: int | None = None,
        calls_tool: bool = False,
    ) -> None:
        self.rid = rid
        self.arrival_ns = arrival_ns
        self.prompt = prompt
        self.max_new_tokens = max_new_tokens
        self.priority = priority
        self.ignore_eos = ignore_eos
        self.predicted_output_tokens = predicted_output_tokens
        self.tenant = tenant
        self.session = session
        self.warm_up = warm_up
        self.gives_up_ns = gives_up_ns
        self.calls_tool = calls_tool

    def __repr__(self) -> str:
        known = {name: getattr(self, name) for name in ("priority", "ignore_eos", "session")}
        told = ", ".join(f"{name}={value!r}" for name, value in known.items() if value)
        sizes = f"{self.arrival_ns} ns, {self.prompt!r}, {self.max_new_tokens} tokens"
        return f"RequestSpec({self.rid!r}, {sizes}{told and ', ' + told})"

    def copy(self) -> "RequestSpec":
        return RequestSpec(
            self.rid,
            self.arrival_ns,
            self.prompt,
            self.max_new_tokens,
            self.priority,
            self.ignore_eos,
            self.predicted_output_tokens,
            self.tenant,
            self.session,
            self.warm_up,
            self.gives_up_ns,
            self.calls_tool,
        )
