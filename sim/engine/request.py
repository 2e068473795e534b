"""A server's state of one request: what every scheduler family keeps about it."""

from sim.core.request import RequestSpec, Status

NEVER_NS = -1


class Lockstep:
    """How many decode steps a batch whose rows decode together has begun, and has done.

    A row's KV is allocated when a step begins; its token is known when the step is done. Under
    overlap scheduling `num_done` lags `num_begun` by one.
    """

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_done = 0


class Request:
    """One request on one server. Mutable; owned by the scheduler and its engine.

    A family adds what it alone needs in a subclass.

    While a request is a row of the running batch, its lengths grow with every step of the batch
    without anybody visiting the request. They are stored relative to the batch's counters:

        counters of the batch    num_begun = 10, num_done = 9
        a row joins              100 tokens in KV: stored as 100 - 10 = 90
                                 generated 1 of at most 50 tokens, 49 left: stored as 49 + 9 = 58
        five steps later         num_begun = 15, num_done = 14
        reading                  seq_len = 90 + 15 = 105
                                 58 - 14 = 44 tokens left: num_generated = 50 - 44 = 6

    `seq_len` and `num_generated` do these sums, so they are right inside and outside the batch. The
    58 is also the count of steps done at which the row reaches its limit: `limit_step`.

    Attributes:
        spec: what the client asked for.
        prompt_len: tokens of the prompt.
        max_new_tokens: the client's limit, cut to what context and pool have room for.
        priority: the client's, or the family's default.
        status: where the request is.
        lockstep: counters of the running batch it is a row of; None outside.
        seq_base, limit_step: the stored lengths, for the running batch alone.
        prefix_len: tokens cached or computed before the current prefill step.
        extend_end: prompt position where the current prefill step ends.
        loaded_len: the last of the prefix's tokens, brought back from host memory by this step.
        scheduled_ns, first_token_ns: when it was first in a batch; when its first token was known.
        last_token_ns: kept by the TokenClock.
        cached_tokens, host_cached_tokens: prompt tokens found when it was first scheduled; the
            part of them that was in host memory.
        retractions, preemptions: how often it was put back.
        is_aged: it has, at some time, waited so long that it went first.
    """

    __slots__ = (
        "cached_tokens",
        "extend_end",
        "first_token_ns",
        "host_cached_tokens",
        "is_aged",
        "last_token_ns",
        "limit_step",
        "loaded_len",
        "lockstep",
        "max_new_tokens",
        "preemptions",
        "prefix_len",
        "priority",
        "prompt_len",
        "retractions",
        "scheduled_ns",
        "seq_base",
        "spec",
        "status",
    )

    def __init__(self, spec: RequestSpec, *, limit: int, priority: int = 0) -> None:
        self.spec = spec
        self.prompt_len = len(spec.prompt)
        self.max_new_tokens = limit
        self.priority = priority
        self.status = Status.WAITING
        self.lockstep: Lockstep | None = None
        self.seq_base = 0
        self.limit_step = limit
        self.prefix_len = self.extend_end = self.loaded_len = 0
        self.scheduled_ns = self.first_token_ns = self.last_token_ns = NEVER_NS
        self.cached_tokens = self.host_cached_tokens = 0
        self.retractions = self.preemptions = 0
        self.is_aged = False

    @property
    def rid(self) -> str:
        return self.spec.rid

    # ---- lengths -------------------------------------------------------------------------------

    @property
    def seq_len(self) -> int:
        """Tokens whose KV is allocated."""
        lockstep = self.lockstep
        return self.seq_base if lockstep is None else self.seq_base + lockstep.num_begun

    @seq_len.setter
    def seq_len(self, num_tokens: int) -> None:
        lockstep = self.lockstep
        self.seq_base = num_tokens if lockstep is None else num_tokens - lockstep.num_begun

    @property
    def num_generated(self) -> int:
        """Output tokens known."""
        lockstep, num_tokens = self.lockstep, self.max_new_tokens - self.limit_step
        return num_tokens if lockstep is None else num_tokens + lockstep.num_done

    @num_generated.setter
    def num_generated(self, num_tokens: int) -> None:
        lockstep, num_left = self.lockstep, self.max_new_tokens - num_tokens
        self.limit_step = num_left if lockstep is None else num_left + lockstep.num_done

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known."""
        lockstep = self.lockstep
        num_tokens = self.prompt_len + self.max_new_tokens - self.limit_step
        return num_tokens if lockstep is None else num_tokens + lockstep.num_done

    @property
    def extend_len(self) -> int:
        """Tokens that the current prefill step computes."""
        return self.extend_end - self.prefix_len

    # ---- the running batch ---------------------------------------------------------------------

    @property
    def in_running_batch(self) -> bool:
        return self.lockstep is not None

    def join(self, lockstep: Lockstep) -> None:
        """The request is a row of the running batch with these counters from now on."""
        self.seq_base -= lockstep.num_begun
        self.limit_step += lockstep.num_done
        self.lockstep = lockstep

    def leave(self) -> None:
        """The request is no row of the running batch any more."""
        lockstep = self.lockstep
        if lockstep is not None:
            self.seq_base += lockstep.num_begun
            self.limit_step -= lockstep.num_done
            self.lockstep = None

    # ---- prefill -------------------------------------------------------------------------------

    def found(self, num_tokens: int) -> None:
        """The first `num_tokens` tokens are cached on the device."""
        self.prefix_len = num_tokens

    def take_chunk(self, end: int, num_loaded: int = 0) -> None:
        """The next step computes the tokens from the prefix to `end`.

        `num_loaded` tokens after the prefix found are loaded from host memory: they join it.
        """
        self.prefix_len += num_loaded
        self.loaded_len = num_loaded
        self.extend_end = end

    def chunk_computed(self) -> None:
        """What the current prefill step computes is the prefix of the next one."""
        self.prefix_len = self.extend_end

    def lose_prefix(self) -> None:
        """Nothing is computed any more: the request was put back into the queue."""
        self.prefix_len = self.extend_end = 0
