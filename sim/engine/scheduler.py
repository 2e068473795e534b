"""What an engine needs of a scheduler, whichever family of servers it belongs to."""

from collections.abc import Iterable

from sim.core.errors import InvariantError
from sim.engine.kv_memory import KVMemory
from sim.engine.launch import Decisions, Launch
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.sglang.scheduler.fairness import NEVER_AGES_NS


class BaseScheduler:
    """One server's scheduler: a base class.

    Attributes:
        running: requests that decode in lockstep; a row leaves by itself only if it is left out of
            a launch.
        decisions: of the last call of `next_launch`.
        num_slots_used: requests that hold KV, or wait for the result that ends them.
        has_finished_rows: the running batch holds rows that are finished, until the next call.
    """

    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory
        self.running = RunningBatch(memory.page_size)
        self.decisions = Decisions()
        self.num_slots_used = 0
        self.has_finished_rows = False

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as there is room for it; 0 or less: the request is rejected."""
        raise NotImplementedError

    def enter(self, request: Request) -> None:
        """A request waits from now on."""
        raise NotImplementedError

    def withdraw(self, request: Request) -> None:
        """A waiting request is over: the token that ends it was on its way when it was put back."""
        raise InvariantError(f"{request.rid} ended while it waited")

    @property
    def num_waiting(self) -> int:
        raise NotImplementedError

    def waiting_requests(self) -> Iterable[Request]:
        """All that wait, in no order to rely on."""
        raise NotImplementedError

    def requests_elsewhere(self) -> Iterable[Request]:
        """Those that neither wait nor are in the running batch, nor only in a launch in flight."""
        raise NotImplementedError

    def release(self, request: Request) -> None:
        """Free a request's KV and slot. It must not be in the running batch, or be finished."""
        self._memory.release(request.kv, request.seq_len)
        request.seq_len = 0
        self.num_slots_used -= 1
        if self.num_slots_used < 0:
            raise InvariantError("a request slot was freed twice")

    def num_tokens_kept(self, request: Request) -> int:
        """Of a request that is over, the first tokens that others may find.

        The last token has KV only if a step was decided before it was known to be the last.
        """
        return min(request.seq_len, request.num_tokens)

    def in_order_of_end(self, finishing: list[Request]) -> list[Request]:
        """Requests that end with the same step, in the order in which they give back their KV."""
        return finishing

    # ---- the step ------------------------------------------------------------------------------

    def next_launch(self, now_ns: int, in_flight: Launch | None) -> Launch | None:
        """Decide the next batch and allocate its KV, or return None if nothing can run.

        Args:
            now_ns: time of the decision.
            in_flight: the launch whose result is not known yet (overlap), or None.
        """
        raise NotImplementedError

    def idle(self, now_ns: int) -> int | None:
        """Nothing was launched and no result is awaited: until when to wait; None: an arrival.

        Raises:
            InvariantError: requests wait, nothing runs, and still nothing can be admitted.
        """
        raise NotImplementedError

    @property
    def resting(self) -> list[Request]:
        """Requests that decode but have no row in the last launch: others went before them."""
        raise NotImplementedError

    @property
    def next_aging_ns(self) -> int:
        """From then on a decision may differ though nobody arrives or leaves."""
        return NEVER_AGES_NS

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def repeats(self) -> bool:
        """The next decision is to decode the same rows again, unless one ends or pages run out."""
        raise NotImplementedError

    def decode_again(self, num_steps: int) -> list[float]:
        """So many such steps are taken at once; returns the new-token ratio at each."""
        raise NotImplementedError

    # ---- for the log ---------------------------------------------------------------------------

    @property
    def num_running(self) -> int:
        """Requests that run, those that rest included."""
        raise NotImplementedError

    def num_running_shown(self, *, is_mixed: bool) -> int:
        """The same as the family's own log would have it, after a mixed launch or another."""
        return self.num_running

    @property
    def is_full(self) -> bool:
        """No request is let in for now, whoever waits."""
        raise NotImplementedError

    @property
    def new_token_ratio(self) -> float:
        """The share of what running requests may still generate that admission reserves."""
        return 0.0

    @property
    def chunked_rid(self) -> str | None:
        """A request whose prompt has more chunks to come."""
        raise NotImplementedError
