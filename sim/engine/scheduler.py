"""The base class of every family's scheduler.

What the engine asks, and when. A family overrides what its rules need.

    moment                                   methods
    a request arrives                        takes, token_limit, new_request
    a decision polls                         look_for_late, enter, take_dropped, abort
    a decode server's decision begins        take_dropped  (SGLang)
    the decision                             use_micro_batch, decide
    it launched nothing, and nothing runs    idle
    a result is taken in                     use_micro_batch, begin_result
      a row's, in lockstep                   prefill_computed
      a row's, row by row                    chunk_done, prompt_done, prefill_computed, verified
      a prompt's, on a prefill server        prefill_computed, hold; discard if it is given up
      a request ends with it                 in_order_of_end, give_back; withdraw if it waits
        with a complete answer               finished
    equal decode steps are passed at once    repeats, decode_again, decoded_again
      row by row                             num_row_steps, decode_rows_again
      with drafts, in addition               draft_run, drafts_again
    a decision or a result shows its end     let_go, transfer_ended, lease_end_ns  (vLLM)
    a group is made of ranks                 join_ranks
    `awaits_ranks` after a rank's decision   go_on
    all ranks of a group have decided        note_group
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic

from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import RequestSpec, Status
from sim.core.tokens import TokenSequence
from sim.engine.decode_run import DraftRun
from sim.engine.page_pool import Span
from sim.engine.records import Decision, Launch
from sim.engine.request import OutputTokens
from sim.engine.running_batch import KVMemory, R, RunningBatch
from sim.engine.server_config import NO_PARTNER
from sim.engine.store import Store

FrontEndLimits = tuple[int | None, int | None]
NO_LIMITS: FrontEndLimits = (None, None)
# Later than any time of a run.
NEVER_AGES_NS = 1 << 62


@mypyc_attr(allow_interpreted_subclasses=True)
class RankTalk:
    """What the ranks of a group tell each other in the middle of their decisions."""

    def gather(self, rank: int, told: Any) -> Sequence[Any]:
        """Tell the others `told`, in the middle of a decision; returns what each rank has told."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class BaseScheduler(Generic[R]):
    """Base class: the scheduler of one server.

    Attributes:
        memory: the server's KV memory.
        running: the requests that decode, one token each a step.
        num_slots_used: requests that hold KV, or wait for the result of their last step.
        has_finished_rows: whether `running` contains finished rows, which the next `decide`
            removes.
        poll_interval: see `sim.engine.live_requests.InputQueue`.
        ends_in_batch_order: a prefill row that ends gives back its KV before later rows of the
            batch are cached; otherwise all ended rows do it last, see `in_order_of_end`.
        has_limits: requests may be dropped because too many wait, or because they are late; or more
            happens when a request enters the queue, so that only a decision takes it in.
        dropped: requests that were dropped because too many wait, since the last `take_dropped`.
        goes_row_by_row: its launches are `RowLaunch`es, and each row has counters of its own (see
            `sim.engine.rows`).
        repeats_rows: row by row, decisions may repeat each other (`num_row_steps`).
        repeats_drafts: decisions to verify drafts may repeat each other (`draft_run`).
        keeps_tokens_in_flight: row by row, a request that is put back into the queue keeps the
            tokens of a step in flight.
        aborts_before_results: requests whose clients have given up are dropped before a result is
            taken in, not only at polls.
        front_end_limits: from how many requests, and from how many prompt tokens of requests
            without a first token, the front end refuses any other one; None: no limit.
        takes_turns: in a pipeline, a step is decided after each result, micro-batch by micro-batch.
        fills_places: see `sim.engine.pipeline.decides_again`.
        awaits_ranks: `decide` has not ended. `go_on` does that, once all ranks have come this far.
        device_free_ns: when the steps launched so far end, as far as the driver has said so.
        partner: hears of requests that are shared with a server of another role.
        looks_while_sending: a server whose only work is to send KV goes on looking whether the KV
            has been sent.
        stores: where KV goes from host memory, in the order in which it is looked for.
    """

    family: str

    def __init__(self, memory: KVMemory) -> None:
        self.memory = memory
        self.running: RunningBatch[R] = RunningBatch(memory.page_size)
        self.num_slots_used = 0
        self.has_finished_rows = False
        self.poll_interval = 1
        self.ends_in_batch_order = False
        self.goes_row_by_row = self.repeats_rows = self.keeps_tokens_in_flight = False
        self.has_limits = self.aborts_before_results = self.repeats_drafts = False
        self.dropped: list[R] = []
        self.front_end_limits = NO_LIMITS
        self.takes_turns = self.fills_places = self.awaits_ranks = False
        self.device_free_ns = 0
        self.partner = NO_PARTNER
        self.looks_while_sending = True
        self.stores: Sequence[Store] = ()

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as context and pool allow, see `takes`."""
        raise NotImplementedError

    def takes(self, prompt_len: int, max_new_tokens: int) -> bool:
        """Whether a request of this size is put into the queue; if not, it is rejected at once."""
        return self.token_limit(prompt_len, max_new_tokens) > 0

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> R:
        """Make the state of a new request, which holds no KV yet.

        `limit` is its `token_limit`; its output tokens come from `outputs`.
        """
        raise NotImplementedError

    def enter(self, request: R) -> None:
        """Put a request into the waiting queue."""
        raise NotImplementedError

    def take_dropped(self) -> list[R]:
        dropped, self.dropped = self.dropped, []
        return dropped

    def look_for_late(self, now_ns: int) -> Sequence[R]:
        """At a poll: the requests that have waited or run for too long, in order."""
        return ()

    def abort(self, request: R, in_flight: Sequence[Launch[R]]) -> bool:
        """End a request whose answer is not complete.

        Args:
            request: the request.
            in_flight: the launches whose results are not known, oldest first.

        Returns True: it is gone, and has freed what it held. False: it ends with its next result,
        or is among `Decision.aborted` of the next decision.
        """
        raise NotImplementedError

    def withdraw(self, request: R) -> None:
        """Remove a waiting request that has ended.

        It was put back into the queue while its last token was in flight.
        """
        raise InvariantError(f"{request.rid} ended while it waited")

    @property
    def num_waiting(self) -> int:
        """Number of waiting requests. Families with long queues override this slow count."""
        return sum(1 for _ in self.waiting_requests())

    def waiting_requests(self) -> Iterable[R]:
        """All waiting requests, in no particular order."""
        raise NotImplementedError

    def requests_elsewhere(self) -> Iterable[R]:
        """Live requests that neither wait nor run nor belong to a launch in flight.

        An example is a request between two chunks of its prompt.
        """
        raise NotImplementedError

    def share_stores(self, stores: Sequence[Store]) -> None:
        """Use these stores in place of its own, one for each. Only before the first request."""
        raise InvariantError("a server without a store was to share one")

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: Launch[R] | None) -> Decision[R]:
        """Decide the next batch and allocate its KV.

        `in_flight` is the launch whose result is not known yet (overlap scheduling), or None.
        """
        raise NotImplementedError

    def idle(self, now_ns: int, decision: Decision[R]) -> int | None:
        """Until when to wait if a decision launched nothing and no step is in flight.

        Returns the time of the next decision. None: decide again at once if `decision` took a
        request out, else wait for an arrival.

        Raises InvariantError: requests wait and nothing runs, but none of them can be admitted.
        """
        if self.num_waiting and not decision.takes_out:
            raise InvariantError(f"{self.num_waiting} requests wait and none can be admitted")
        return None

    @property
    def resting(self) -> Sequence[R]:
        """Running requests that the last launch left out because other requests went first."""
        return ()

    @property
    def next_aging_ns(self) -> int:
        """The time from which a decision may change although no request arrives or leaves.

        An example is the time at which a waiting request ages under a fairness rule.
        """
        return NEVER_AGES_NS

    def join_ranks(self, rank: int, talk: RankTalk) -> None:
        """This server is a rank of a group, the one with this number."""

    def go_on(self, *, others_prefill: bool) -> Decision[R]:
        """With `awaits_ranks`: end the decision. `others_prefill`: some other rank does."""
        raise NotImplementedError

    def note_group(self, modes: Sequence[ForwardMode]) -> None:
        """All ranks of a group have decided a step; those that launched have these modes."""

    def use_micro_batch(self, number: int) -> None:
        """From now on decide for this micro-batch of a pipeline, and take in its results.

        `running` becomes its running batch.
        """
        raise NotImplementedError

    # ---- results -------------------------------------------------------------------------------

    def prefill_computed(self, request: R) -> None:
        """All tokens up to the request's `extend_end` are computed: they may go into the cache."""

    def give_back(self, request: R) -> None:
        """A running request has ended: keep its cacheable KV, free the rest and its slot."""
        raise NotImplementedError

    def finished(self, request: R, now_ns: int) -> None:
        """A request has ended with a complete answer, and holds nothing any more."""

    def let_kept_go(self) -> None:
        """No further request will come: what is kept for such requests is let go of."""

    def free_slot(self, request: R) -> None:
        """Free the slot of a request that holds no KV. It has left the batch, or is finished."""
        if not request.in_running_batch:
            request.seq_len = 0
        self.num_slots_used -= 1
        if self.num_slots_used < 0:
            raise InvariantError("a request slot was freed twice")

    def in_order_of_end(self, finishing: list[R]) -> list[R]:
        """Requests that end in the same step, in the order in which they free their KV."""
        return finishing

    # ---- results of servers that go row by row (`sim.engine.rows`) -------------------------

    def is_over(self, request: R, num_tokens: int) -> bool:
        """Whether a request has ended, or has lost the `num_tokens` tokens of a step in flight."""
        if request.status is Status.WAITING:
            return not self.keeps_tokens_in_flight
        return request.status is not Status.RUNNING

    def chunk_done(self, request: R, num_tokens: int) -> None:
        """A step has computed `num_tokens` tokens of a prompt that has more."""

    def prompt_done(
        self, request: R, *, num_tokens: int, num_drafts: int, num_proposed: int
    ) -> None:
        """A step has computed the last tokens of a prompt, and sampled a token.

        Args:
            request: the row.
            num_tokens: tokens that it computed.
            num_drafts: those of them that were no prompt but stood for drafts; all are rejected.
            num_proposed: draft tokens that follow the sampled one.
        """

    def verified(
        self, request: R, *, num_drafts: int, num_sampled: int, num_kept: int, num_proposed: int
    ) -> None:
        """The result of a decode row is known; its `num_generated` does not count it yet.

        Args:
            request: the row; it may have been put back into the queue meanwhile.
            num_drafts: draft tokens that the row verified.
            num_sampled: tokens that it sampled: one, and the accepted drafts.
            num_kept: those of them within the request's limit.
            num_proposed: draft tokens that follow the sampled ones.
        """
        raise NotImplementedError

    # ---- requests that are shared with servers of another role (`sim.engine.parts`) --------------

    def hold(self, request: R) -> None:
        """On a prefill server: the prompt is computed, and its KV stays until it is sent."""

    def let_go(self, request: R) -> None:
        """On a prefill server: a held request's KV has left, or is not wanted; it ends next."""

    def discard(self, request: R) -> None:
        """On a prefill server: a request ends with its prompt, which nobody waits for any more."""
        raise NotImplementedError

    def begin_result(self) -> None:
        """The result of the oldest step in flight is taken in next."""

    def keeps_blocks(self, rid: str) -> bool:
        """On a decode server: blocks of a request that has ended wait for its KV."""
        return False

    def transfer_ended(self, rid: str, *, is_lost: bool) -> bool:
        """On a decode server: KV has arrived or is lost; returns whether its request ends so."""
        raise NotImplementedError

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """On a prefill server: when KV is freed that was computed, and lost on its way."""
        raise NotImplementedError

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def repeats(self) -> bool:
        """Whether the next decision is certain to repeat the last decode batch.

        The engine itself checks that no row ends and that there are enough pages.
        """
        raise NotImplementedError

    def decode_again(self, num_steps: int) -> list[float]:
        """Repeat the decode decision `num_steps` times; returns the new-token ratio at each."""
        return [self.new_token_ratio] * num_steps

    def decoded_again(self, num_steps: int) -> None:
        """Called after repeated steps, when their KV is allocated."""

    def num_row_steps(self, rows: Sequence[R], most: int) -> int:
        """Row by row: how many of the next decisions, at most `most`, repeat the last one.

        That one gave one token to each of these rows, and did nothing else. There must be pages for
        all of the steps; the engine itself checks that no row ends.
        """
        raise NotImplementedError

    def decode_rows_again(self, rows: Sequence[R], num_steps: int) -> list[int]:
        """Repeat this decision, and count its results; returns the pages that each has taken."""
        raise NotImplementedError

    def draft_run(self, rows: Sequence[R], outputs: Int64) -> DraftRun:
        """The next decisions with drafts of these rows, as far as there are pages: `DraftRun`."""
        raise NotImplementedError

    def drafts_again(self, rows: Sequence[R], run: DraftRun) -> Int64:
        """Make these decisions, and count the results but the last one's.

        Returns the tokens evicted since the first decision, after each; shape [num_steps].
        """
        raise NotImplementedError

    # ---- for logs and for the real runner ------------------------------------------------------

    @property
    def num_running(self) -> int:
        """Running requests, including those that rest."""
        return len(self.running)

    def num_running_shown(self, *, is_mixed: bool) -> int:
        """`num_running` as a real server logs it, which may depend on the kind of launch."""
        return self.num_running

    @property
    def batch_is_full(self) -> bool:
        """Whether admission is closed for now, for every waiting request."""
        return False

    @property
    def new_token_ratio(self) -> float:
        """Share of the running requests' remaining output that admission reserves KV for."""
        return 0.0

    @property
    def chunked_rid(self) -> str | None:
        """A request whose prompt has more chunks to come."""
        return None

    def token_ids(self, request: R, num_tokens: int) -> TokenSequence:
        """The first `num_tokens` tokens of a request: prompt, then output so far."""
        raise NotImplementedError

    def spans(self, request: R, num_tokens: int) -> list[Span]:
        """The pages of a request's first `num_tokens` tokens, in order; all are allocated.

        Pages that were only reserved for decode steps get their ids here.
        """
        raise NotImplementedError
