"""What an engine needs of a scheduler, whichever family of servers it belongs to."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from sim.core.errors import InvariantError
from sim.core.request import RequestSpec
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import TokenIds
from sim.engine.launch import Decision, Launch
from sim.engine.page_pool import KVMemory, Span
from sim.engine.running_batch import R, RunningBatch

# Later than any time of a run.
NEVER_AGES_NS = 1 << 62


class BaseScheduler(Generic[R]):
    """One server's scheduler: a base class.

    Attributes:
        family: the name of its family.
        memory: the KV that it decides about.
        running: requests that decode in lockstep; a row leaves by itself only if it is left out of
            a launch.
        num_slots_used: requests that hold KV, or wait for the result that ends them.
        has_finished_rows: the running batch holds rows that are finished, until the next call.
    """

    family: str

    def __init__(self, memory: KVMemory) -> None:
        self.memory = memory
        self.running: RunningBatch[R] = RunningBatch(memory.page_size)
        self.num_slots_used = 0
        self.has_finished_rows = False

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as there is room for it; 0 or less: the request is rejected."""
        raise NotImplementedError

    def new_request(
        self,
        spec: RequestSpec,
        limit: int,
        output_ids: Callable[[int], TokenIds],
        output_part: Callable[[int, int], TokenSequence],
    ) -> R:
        """The scheduler's state of a request that holds nothing yet.

        Args:
            spec: what the client asks for.
            limit: `token_limit` of it.
            output_ids: returns the first n output tokens, all generated already.
            output_part: returns output tokens from one position to another, to be kept.
        """
        raise NotImplementedError

    def enter(self, request: R) -> None:
        """A request waits from now on."""
        raise NotImplementedError

    def withdraw(self, request: R) -> None:
        """A waiting request is over: the token that ends it was on its way when it was put back."""
        raise InvariantError(f"{request.rid} ended while it waited")

    @property
    def num_waiting(self) -> int:
        """Requests that wait; a family with a long queue counts them in a quicker way."""
        return sum(1 for _ in self.waiting_requests())

    def waiting_requests(self) -> Iterable[R]:
        """All that wait, in no order to rely on."""
        raise NotImplementedError

    def requests_elsewhere(self) -> Iterable[R]:
        """Those that neither wait nor are in the running batch, nor only in a launch in flight."""
        raise NotImplementedError

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: Launch[R] | None) -> Decision[R]:
        """Decide the next batch and allocate its KV.

        Args:
            now_ns: time of the decision.
            in_flight: the launch whose result is not known yet (overlap), or None.
        """
        raise NotImplementedError

    def idle(self, now_ns: int, decision: Decision[R]) -> int | None:
        """The time to wait for when a decision launched nothing and no result is awaited.

        Returns:
            None: wait for an arrival, or decide again if the decision put some request back.

        Raises:
            InvariantError: requests wait, nothing runs, and still nothing can be admitted.
        """
        if self.num_waiting and not decision.takes_out:
            raise InvariantError(f"{self.num_waiting} requests wait and none can be admitted")
        return None

    @property
    def resting(self) -> Sequence[R]:
        """Requests that decode but have no row in the last launch: others went before them."""
        return ()

    @property
    def next_aging_ns(self) -> int:
        """From then on a decision may differ though no request arrives or leaves."""
        return NEVER_AGES_NS

    # ---- results -------------------------------------------------------------------------------

    def prefill_computed(self, request: R) -> None:
        """All tokens up to the request's `extend_end` are computed: others may find them."""

    def give_back(self, request: R) -> None:
        """A running request is over: keep what others may find, free its KV and its slot."""
        raise NotImplementedError

    def free_slot(self, request: R) -> None:
        """A request holds no KV any more. It must not be in the running batch, or be finished."""
        if not request.in_running_batch:
            request.seq_len = 0
        self.num_slots_used -= 1
        if self.num_slots_used < 0:
            raise InvariantError("a request slot was freed twice")

    def in_order_of_end(self, finishing: list[R]) -> list[R]:
        """Requests that end with the same step, in the order in which they give back their KV."""
        return finishing

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def repeats(self) -> bool:
        """The next decision is to decode the same rows again, unless one ends or pages run out."""
        raise NotImplementedError

    def decode_again(self, num_steps: int) -> list[float]:
        """Take `num_steps` such decisions at once; returns the new-token ratio at each."""
        return [self.new_token_ratio] * num_steps

    # ---- for logs and for who computes ---------------------------------------------------------

    @property
    def num_running(self) -> int:
        """Requests that run, those that rest included."""
        return len(self.running)

    def num_running_shown(self, *, is_mixed: bool) -> int:
        """`num_running` as the family's own log has it, after a mixed launch or another."""
        return self.num_running

    @property
    def batch_is_full(self) -> bool:
        """No request is admitted for now, whichever waits."""
        return False

    @property
    def new_token_ratio(self) -> float:
        """The share of what running requests may still generate that admission reserves."""
        return 0.0

    @property
    def chunked_rid(self) -> str | None:
        """A request whose prompt has more chunks to come."""
        return None

    def token_ids(self, request: R, num_tokens: int) -> TokenSequence:
        """The first tokens of a request's prompt and output so far."""
        raise NotImplementedError

    def spans(self, request: R, num_tokens: int) -> list[Span]:
        """The pages of a request's first `num_tokens` tokens, all allocated, in order.

        Pages promised to decode steps are handed out.
        """
        raise NotImplementedError
