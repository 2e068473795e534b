"""A request on a server: its state, its tokens, and the gaps between these; in every family."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64, Narrow, NarrowColumn, narrowed
from sim.core.request import RequestSpec, Status
from sim.core.tokens import (
    NO_STREAM,
    JoinedTokens,
    LazyTokens,
    PageKey,
    Place,
    Prompt,
    TokenIds,
    TokenSequence,
    page_key,
    place_key,
    prompt_part,
)
from sim.engine.token_runs import TokenRuns

NEVER_NS = -1


class Lockstep:
    """Counts the decode steps that a batch has begun, and those that are done.

    A step allocates KV for each row when it begins; the rows' tokens are known when it is done.
    The difference is the number of steps in flight.
    """

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_done = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Request:
    """One request on one server. Its scheduler and its engine change it.

    A family keeps further state of a request in a subclass.

    While a request is a row of the running batch, its lengths grow with every step. To avoid an
    update of every row in every step, they are stored relative to the batch's counters:

        counters of the batch    num_begun = 10, num_done = 9
        a row joins              100 tokens in KV: stored as 100 - 10 = 90
                                 generated 1 of at most 50 tokens, 49 left: stored as 49 + 9 = 58
        five steps later         num_begun = 15, num_done = 14
        reading                  seq_len = 90 + 15 = 105
                                 58 - 14 = 44 tokens left: num_generated = 50 - 44 = 6

    `seq_len` and `num_generated` compute these sums, so they are always right. The row reaches its
    limit when 58 steps are done: the stored 58 is called `limit_step`.

    Attributes:
        prompt_len: tokens of the prompt.
        max_new_tokens: the client's limit, reduced to what the context and the pool allow.
        priority: the client's priority, or the family's default.
        status: waiting, running, or how it ended.
        lockstep: counters of the running batch that it is a row of; None outside a batch.
        seq_base, limit_step: the stored lengths; only `RunningBatch` may read them.
        prefix_len: tokens that are cached or computed before the current prefill step.
        extend_end: position in the prompt where the current prefill step ends.
        loaded_len: tokens at the end of the prefix that this step loads from host memory.
        load_tokens: how many tokens of all layers take as long to load.
        scheduled_ns: when the first batch with this request was decided.
        last_token_ns: used by the TokenClock.
        cached_tokens: prompt tokens that the cache held when it was first scheduled.
        host_cached_tokens: the part of the cached tokens that was in host memory.
        retractions, preemptions: how often it was put back into the queue.
        end_status: how it ends if its answer is not completed: aborted, or rejected if it is in the
            queue although it can never be served.
        verify_steps, drafted_tokens, accepted_tokens: steps in which draft tokens of it were
            verified, those tokens, and the accepted ones of them.
        is_aged: whether it ever waited so long that the fairness rule moved it to the front.
    """

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
        self.load_tokens = 0.0
        self.scheduled_ns = self.first_token_ns = self.last_token_ns = NEVER_NS
        self.cached_tokens = self.host_cached_tokens = 0
        self.retractions = self.preemptions = 0
        self.verify_steps = self.drafted_tokens = self.accepted_tokens = 0
        self.is_aged = False
        self.end_status = Status.ABORTED

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
        """Output tokens that are known."""
        lockstep, num_tokens = self.lockstep, self.max_new_tokens - self.limit_step
        return num_tokens if lockstep is None else num_tokens + lockstep.num_done

    @num_generated.setter
    def num_generated(self, num_tokens: int) -> None:
        lockstep, num_left = self.lockstep, self.max_new_tokens - num_tokens
        self.limit_step = num_left if lockstep is None else num_left + lockstep.num_done

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt, and output tokens that are known."""
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
        """Become a row of the running batch that has these counters."""
        self.seq_base -= lockstep.num_begun
        self.limit_step += lockstep.num_done
        self.lockstep = lockstep

    def leave(self) -> None:
        """Stop being a row of the running batch."""
        lockstep = self.lockstep
        if lockstep is not None:
            self.seq_base += lockstep.num_begun
            self.limit_step -= lockstep.num_done
            self.lockstep = None

    # ---- prefill -------------------------------------------------------------------------------

    def found(self, num_tokens: int) -> None:
        """Note that the first `num_tokens` tokens are cached on the device."""
        self.prefix_len = num_tokens

    def take_chunk(self, end: int, num_loaded: int = 0, load_tokens: float = 0.0) -> None:
        """Plan the next prefill step: it computes the tokens from the prefix to `end`.

        The step first loads `num_loaded` further tokens of the prefix from host memory, which takes
        as long as `load_tokens` tokens of all layers.
        """
        self.prefix_len += num_loaded
        self.loaded_len, self.load_tokens = num_loaded, load_tokens
        self.extend_end = end

    def chunk_computed(self) -> None:
        """The current prefill step is done: its tokens belong to the prefix of the next one."""
        self.prefix_len = self.extend_end

    def lose_prefix(self) -> None:
        """The request was put back into the queue: its KV is lost, no token counts as computed."""
        self.prefix_len = self.extend_end = 0


class OutputTokens:
    """Where the output tokens of a request come from.

    Attributes:
        ids: `ids(n)` returns the first n output tokens, all generated already.
        part: `part(start, stop)` returns generated output tokens in a form that can be stored
            after the request has ended.
    """

    def __init__(
        self,
        ids: Callable[[int], TokenIds],
        part: Callable[[int, int], TokenSequence],
    ) -> None:
        self.ids: Final = ids
        self.part: Final = part


class RequestTokens:
    """The tokens of a request: prompt, then output. Arrays are made only when they are read.

    A family's class for a request's KV pages derives from this.
    """

    def __init__(self, prompt: Prompt, outputs: OutputTokens) -> None:
        self._prompt = prompt
        self._outputs = outputs
        self._prompt_len = len(prompt)
        # The latest key by place, the latest token, and where they begin: they are asked for again.
        self._key: PageKey | None = None
        self._key_start = self._token = self._token_start = -1

    def token_ids(self, num_tokens: int) -> "FirstTokens":
        """The first `num_tokens` tokens of prompt and output."""
        return FirstTokens(self, num_tokens)

    def part(self, start: int, stop: int) -> TokenSequence:
        """Tokens `start` to `stop`, in a form that can be stored after the request has ended."""
        prompt_len = self._prompt_len
        if stop <= prompt_len:
            return prompt_part(self._prompt, start, stop)
        output = self._outputs.part(max(start - prompt_len, 0), stop - prompt_len)
        if start >= prompt_len:
            return output
        return JoinedTokens(prompt_part(self._prompt, start, prompt_len), output)

    def ids(self, start: int, stop: int) -> TokenIds:
        """Tokens `start` to `stop`; int64, shape [stop - start]."""
        prompt_len = self._prompt_len
        if stop > prompt_len:
            outputs = self._outputs.ids(stop - prompt_len)
            if start >= prompt_len:
                return outputs[start - prompt_len :]
            return np.concatenate([self._prompt.token_ids(start, prompt_len), outputs])
        return self._prompt.token_ids(start, stop)

    def page_key(self, start: int, page_size: int) -> int | bytes:
        """The key by tokens of the page that begins at token `start`."""
        if page_size == 1 and start < self._prompt_len:
            if self._token_start != start:
                self._token, self._token_start = self._prompt.token_id(start), start
            return self._token
        return page_key(self.ids(start, start + page_size))

    def place_key(self, start: int, page_size: int) -> PageKey | None:
        """The key by place of the page that begins at token `start`."""
        stop = start + page_size
        if stop > self._prompt_len:
            tokens = self.part(start, stop)
            return place_key(tokens, 0, page_size) if isinstance(tokens, LazyTokens) else None
        if self._key_start != start:
            self._key = place_key(self.token_ids(stop), start, stop)
            self._key_start = start
        return self._key

    def stream_at(self, index: int) -> Place:
        """As of a prompt; nothing is known of outputs."""
        return self._prompt.stream_at(index) if index < self._prompt_len else NO_STREAM


class FirstTokens(LazyTokens):
    """The first tokens of a request; an array is made when a slice is read."""

    def __init__(self, tokens: RequestTokens, num_tokens: int) -> None:
        self._tokens = tokens
        self._num_tokens = num_tokens

    def __len__(self) -> int:
        return self._num_tokens

    def __getitem__(self, part: slice, /) -> TokenIds:
        start, stop, _ = part.indices(self._num_tokens)
        return self._tokens.ids(start, max(start, stop))

    def part(self, start: int, stop: int) -> TokenSequence:
        return self._tokens.part(start, stop)

    def page_key(self, start: int, page_size: int) -> int | bytes:
        return self._tokens.page_key(start, page_size)

    def place_key(self, start: int, page_size: int) -> PageKey | None:
        return self._tokens.place_key(start, page_size)

    def stream_at(self, index: int) -> Place:
        seed, place, num_tokens = self._tokens.stream_at(index)
        return seed, place, min(num_tokens, self._num_tokens - index)


# Gaps that are narrowed together.
_GAPS_A_PIECE = 1 << 14
# Stands in `last_token_ns` for "at the clock's last tick".
_TICKING_NS = -(1 << 62)


class TokenClock:
    """Collects inter-token latencies without visiting every request in every step.

    Requests that decode together get their tokens at the same times. So one gap between two steps,
    with the number of these requests, stands for all of them. A gap is measured for a single
    request only when it joins the batch, and when it gets a token outside the batch.

    Attributes:
        keeps_times: note when each gap ended, too; set before the first token.
    """

    def __init__(self) -> None:
        self.keeps_times = False
        # The latest gaps: the single ones, how often each occurred, and when it ended; and others.
        self._gap_ns: list[int] = []
        self._count: list[int] = []
        self._at_ns: list[int] = []
        self._runs = TokenRuns()
        self._narrow: list[tuple[Narrow, ...]] = []
        self._num_ticking = 0
        self._last_tick_ns = 0
        # Requests that joined after the last tick. Their next gaps are measured one by one.
        self._joined: dict[int, Request] = {}

    def join(self, request: Request, now_ns: int) -> None:
        """A request's prefill computed a token; from now on the request decodes."""
        self.single_token(request, now_ns)
        self._joined[id(request)] = request

    def resume(self, request: Request) -> None:
        """A request that had left decodes again, without a new prefill."""
        if request.last_token_ns != _TICKING_NS:
            self._joined[id(request)] = request

    def leave(self, request: Request) -> None:
        """A request stops decoding: it rests, was put back, or has ended."""
        if self._joined.pop(id(request), None) is None and request.last_token_ns == _TICKING_NS:
            self._num_ticking -= 1
            request.last_token_ns = self._last_tick_ns

    def single_token(self, request: Request, now_ns: int) -> None:
        """A request got a token outside the running batch: from a prefill, or after it has left."""
        if request.last_token_ns != NEVER_NS:
            self._add(now_ns - request.last_token_ns, 1, now_ns)
        request.last_token_ns = now_ns

    def tick(self, now_ns: int, rows: Iterable[Request] = ()) -> None:
        """Every decoding request got a token: `rows`, which only a `RowClock` looks at."""
        if self._num_ticking:
            self._add(now_ns - self._last_tick_ns, self._num_ticking, now_ns)
        for request in self._joined.values():
            self._add(now_ns - request.last_token_ns, 1, now_ns)
            request.last_token_ns = _TICKING_NS
        self._num_ticking += len(self._joined)
        self._joined.clear()
        self._last_tick_ns = now_ns

    def tick_many(self, ends_ns: Int64) -> None:
        """`tick` at each time of `ends_ns`; int64, shape [num_steps]."""
        self.tick(int(ends_ns[0]))
        if self._num_ticking and len(ends_ns) > 1:
            if len(self._gap_ns) + self._runs.num_gaps >= _GAPS_A_PIECE:
                self._store()
            self._runs.add(len(self._gap_ns), ends_ns, self._num_ticking)
        self._last_tick_ns = int(ends_ns[-1])

    def take(self) -> tuple[NarrowColumn, NarrowColumn, NarrowColumn | None]:
        """All gaps, how often each occurred, and when each ended if that is kept; forget them."""
        self._store()
        gap_ns = NarrowColumn([pieces[0] for pieces in self._narrow])
        count = NarrowColumn([pieces[1] for pieces in self._narrow])
        at_ns = None
        if self.keeps_times:
            at_ns = NarrowColumn([pieces[2] for pieces in self._narrow])
        self.forget()
        return gap_ns, count, at_ns

    def forget(self) -> None:
        self._narrow.clear()
        self._begin_piece()

    def _begin_piece(self) -> None:
        self._gap_ns, self._count, self._at_ns, self._runs = [], [], [], TokenRuns()

    def _store(self) -> None:
        """Store the latest gaps in little memory."""
        if self._gap_ns or self._runs.num_gaps:
            singles = [self._gap_ns, self._count]
            if self.keeps_times:
                singles.append(self._at_ns)
            columns = self._runs.among(singles)
            self._narrow.append(tuple([narrowed(column) for column in columns]))
            self._begin_piece()

    def _add(self, gap_ns: int, count: int, now_ns: int) -> None:
        if len(self._gap_ns) + self._runs.num_gaps >= _GAPS_A_PIECE:
            self._store()
        self._gap_ns.append(gap_ns)
        self._count.append(count)
        if self.keeps_times:
            self._at_ns.append(now_ns)
