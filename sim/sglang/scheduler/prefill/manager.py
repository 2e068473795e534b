"""Prefill passes: which waiting requests are prefilled next, after the next chunk of a prompt.

Rules 2 to 8, 13, 16 and 17 of docs/explanation/sglang.md (SGLang 0.5.23's
`_get_new_batch_prefill_raw` in managers/scheduler.py). A pass may preempt running requests, which
go back to the queue, for a more important one (rule 13).
"""

from collections.abc import Sequence

from sim.core.batch import ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.scheduler import RankTalk
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangBatch, SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.decode import DecodeManager, Release
from sim.sglang.scheduler.prefill.adder import PrefillAdder, Verdict
from sim.sglang.scheduler.prefill.admission import (
    DelayedPass,
    StaticBatching,
    build_admission,
    build_delayer,
)
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting.queue import WaitingQueue

_NO_LIMIT = 2**62


class PrefillManager:
    """Makes prefill batches of waiting requests.

    Attributes:
        static: when waiting requests may start; None: at any pass, as in SGLang.
        chunked: the request whose prompt is prefilled chunk by chunk; it does not decode yet. It is
            not in the waiting queue.
        drops_chunk: the chunked request's client has given up; it ends with the next decision.
        preempts: whether a waiting request may preempt running ones.
    """

    def __init__(
        self,
        server: SglangServer,
        waiting: WaitingQueue,
        policy: SchedulePolicy,
        decode: DecodeManager,
    ) -> None:
        config = server.config
        self._server = server
        self._config = config
        self._kv = server.kv
        self._rules = server.rules
        self._waiting = waiting
        self._policy = policy
        self._decode = decode
        self._admission = build_admission(
            config.admission, server.kv, config.max_prefill_tokens, config.own_rule("admission")
        )
        static = config.static_batching
        self.static = None if static is None else StaticBatching(static)
        self.chunked: SglangRequest | None = None
        self.drops_chunk = False
        self._delayer = build_delayer(config)
        self.preempts = config.enable_priority_scheduling and not config.disable_priority_preemption
        # SGLang tries a pass at every decision if there are two pools, too (rule 7).
        self._clears_full = self.preempts or server.kv.limits_passes

    def join_ranks(self, rank: int, talk: RankTalk) -> None:
        if self._delayer is not None:
            self._delayer.join_ranks(rank, talk)

    @property
    def delays(self) -> bool:
        """The last pass was delayed, and the next one may not be."""
        return self._delayer is not None and self._delayer.num_delayed > 0

    # ---- the chunked request -------------------------------------------------------------------

    def drop_chunk(self) -> None:
        """The chunked request's client has given up: free its KV, and cache nothing of it."""
        self.drops_chunk = False
        request, self.chunked = self.chunked, None
        if request is not None:
            self._server.release(request)
            request.status = Status.ABORTED
            self._server.decision.aborted.append(request)

    def checkpoint_chunk(self, *, in_every_pass: bool) -> bool:
        """The chunk that was launched last becomes the prefix of the next chunk (rule 14).

        `in_every_pass`: also in passes after one that has launched no chunk. Then the cache may get
        the rest of a chunk, which was inserted up to a branch at first.

        Returns whether the cache has got more of the request.
        """
        request = self.chunked
        if request is None or not (in_every_pass or request.extend_len > 0):
            return False
        num_cached = request.kv.protected_len
        self._server.prefill_computed(request)
        request.chunk_computed()
        return request.kv.protected_len > num_cached

    # ---- a pass --------------------------------------------------------------------------------

    def next_launch(self, now_ns: int, in_flight: SglangLaunch | None) -> SglangLaunch | None:
        """A prefill batch; None: no waiting request can be admitted now."""
        if self._delayer is None:
            return self._pass(now_ns, in_flight, None)
        delay = DelayedPass(
            self._delayer,
            token_usage=self._kv.used_share,
            num_waiting=len(self._waiting),
            now_ns=now_ns,
        )
        launch = self._pass(now_ns, in_flight, delay)
        delay.end(0 if launch is None else len(launch.prefill) + len(launch.decode))
        return launch

    def _may_prefill(self, now_ns: int, in_flight: SglangLaunch | None) -> bool:
        """Whether to try a prefill pass; also updates the full flag (rule 7)."""
        batch, waiting = self._server.batch, self._waiting
        has_newly_aged = waiting.next_aging_ns <= now_ns
        if self.chunked is None and not self._may_join(now_ns, in_flight):
            waiting.update_next_aging(now_ns)
            return False
        if self._clears_full or not batch.num_rows or has_newly_aged:
            batch.is_full = False
        if self.chunked is not None:
            return True
        if batch.is_full or not waiting.requests or self._awaits_slots:
            # Without a pass; a time that has passed would let every later step be decided alone.
            waiting.update_next_aging(now_ns)
            return False
        if self._server.num_free_slots(0) <= 0 and not self.preempts:
            batch.is_full = True
            waiting.update_next_aging(now_ns)
            return False
        return True

    def _may_join(self, now_ns: int, in_flight: SglangLaunch | None) -> bool:
        """Whether waiting requests may join; True if none waits."""
        if self.static is None or not self._waiting.requests:
            return True
        server = self._server
        is_idle = in_flight is None and not (server.running.requests or server.others_run)
        return self.static.may_join(self._waiting.requests, now_ns, is_idle=is_idle)

    @property
    def _num_open_places(self) -> int:
        """How many requests may join under static batching; without it, any number."""
        return _NO_LIMIT if self.static is None else self.static.num_open_places

    @property
    def _awaits_slots(self) -> bool:
        """Too few slots are free yet: they are to be taken together (rule 20).

        SGLang 0.5.23: managers/min_free_slots_delayer.py.
        """
        fewest = min(self._config.min_free_slots_delay, self._config.max_running_requests)
        if fewest <= 1:
            return False
        return self._server.batch.num_rows > 0 and self._server.num_free_slots(0) < fewest

    def _pass(
        self, now_ns: int, in_flight: SglangLaunch | None, delay: DelayedPass | None
    ) -> SglangLaunch | None:
        if not self._may_prefill(now_ns, in_flight):
            return None
        server, waiting = self._server, self._waiting
        waiting.order(now_ns, server.running.requests)
        adder = PrefillAdder(
            server,
            self._decode.ratio.current,
            cuts_while_chunked=self._policy.cuts_while_chunked,
            delay=delay,
        )
        continued = self.chunked
        if continued is not None:
            self.chunked = self._continue_chunk(continued, adder)
            if not (adder.admitted or self._kv.limits_passes):
                return None
        victims = self._admit_waiting(adder, continued)
        joining = [request for request in adder.admitted if request is not continued]
        waiting.leave(joining)
        server.note_admitted(adder.admitted)
        if self.static is not None:
            self.static.note_admitted(len(joining))
        for victim in victims:
            server.enter(victim)
        server.note_dropped()
        if not adder.admitted:
            return None
        if adder.new_chunked is not None:
            self.chunked = adder.new_chunked
        return self._launch(adder.admitted, continued, in_flight)

    def _continue_chunk(self, request: SglangRequest, adder: PrefillAdder) -> SglangRequest | None:
        request.fill_len = request.num_tokens
        limit = None
        if adder.budget.chunk_tokens is not None:
            limit = self._waiting.chunk_limit(request, adder.budget.chunk_tokens)
        return adder.continue_chunk(request, limit)

    def _candidates(self, num_slots: int) -> Sequence[SglangRequest]:
        requests, admission = self._waiting.requests, self._admission
        return requests if admission is None else admission.candidates(requests, num_slots)

    def _admit_waiting(
        self, adder: PrefillAdder, continued: SglangRequest | None
    ) -> list[SglangRequest]:
        """Offer waiting requests to the adder in order; returns the requests preempted for them."""
        server, batch = self._server, self._server.batch
        num_held = 0 if continued is None else 1
        num_open_places = self._num_open_places + num_held
        all_victims: list[SglangRequest] = []
        for request in self._candidates(server.num_free_slots(num_held)):
            if len(adder.admitted) >= num_open_places:
                break
            if self._rules.looks_at_budget_first and adder.budget.verdict() is Verdict.OTHER:
                break
            if len(adder.admitted) >= server.num_free_slots(num_held):
                batch.is_full = True
            if batch.is_full:
                victims = self._preempt_for(request, adder)
                if not victims:
                    break
                all_victims += victims
            if not self._found_prefix(request):
                continue
            verdict = adder.add(request, has_chunked=self.chunked is not None)
            if verdict is not Verdict.CONTINUE:
                self._end_pass(request, adder, verdict)
                break
        return all_victims

    def _end_pass(self, last: SglangRequest, adder: PrefillAdder, verdict: Verdict) -> None:
        """The pass looks at no candidate after this one."""
        if last not in adder.admitted[-1:]:
            self._kv.refuse_candidate(last.kv)
        if verdict is Verdict.NO_TOKEN:
            batch = self._server.batch
            batch.is_full = bool(adder.admitted) or batch.num_rows > 0

    def _found_prefix(self, request: SglangRequest) -> bool:
        """Match a candidate's prefix; False: it has to wait for what is fetched from the store."""
        server = self._server
        storage = server.storage
        if storage is None:
            server.match_prefix(request)
            return True
        if storage.holds_back(request, server.now_ns):
            return False
        server.match_prefix(request)
        if not storage.has_lost(request):
            return True
        server.look_up(request)
        return False

    def _preempt_for(self, request: SglangRequest, adder: PrefillAdder) -> list[SglangRequest]:
        if not self.preempts:
            return []
        server = self._server
        victims = preempt_for(
            request,
            config=self._config,
            adder=adder,
            running=server.running,
            release=server.release_for_later,
        )
        if victims:
            server.decision.preempted.append((request, victims))
            for victim in victims:
                victim.preemptions += 1
        return victims

    def _launch(
        self,
        admitted: list[SglangRequest],
        continued: SglangRequest | None,
        in_flight: SglangLaunch | None,
    ) -> SglangLaunch:
        server = self._server
        self._kv.begin_prefill()
        self._kv.extend((r.kv, r.prefix_len, r.extend_len) for r in admitted)
        num_tokens = 0
        for request in admitted:
            request.seq_len = request.extend_end
            request.status = Status.RUNNING
            num_tokens += request.extend_len
        server.num_slots_used += len(admitted) - (continued is not None)
        mode, decode_rows = ForwardMode.EXTEND, list[SglangRequest]()
        if server.mixes and server.running.requests:
            decode_rows = self._decode.mix_in(in_flight)
            if decode_rows:
                mode = ForwardMode.MIXED
                num_tokens += len(decode_rows)
        chunked = () if self.chunked is None else (self.chunked,)
        launch = server.steps.launch(mode, admitted, decode_rows, chunked)
        launch.num_new_tokens = num_tokens
        self._waiting.processed_tokens += num_tokens
        return launch

    # ---- no pass -------------------------------------------------------------------------------

    @property
    def stays_out(self) -> bool:
        """Whether the next decision is certain to make no pass, unless a request arrives or leaves.

        A pass changes state even if it admits nothing: it orders the queue and marks prefixes.
        """
        if self.chunked is not None:
            return False
        makes_pass = self._num_open_places and (self._clears_full or not self._server.batch.is_full)
        return not (self._waiting.requests and makes_pass)

    def idle(self, now_ns: int, decision: SglangDecision, *, may_go_on: bool) -> int | None:
        """Until when a server waits that has requests but no step; see `BaseScheduler.idle`.

        `may_go_on`: the next decision may differ from this one, which launched nothing.
        """
        may_go_on = may_go_on or decision.takes_out or self._server.has_dropped_rows
        if self.chunked is not None:
            if not may_go_on and self._server.makes_room():
                return now_ns
            if not may_go_on and (error := self._kv.error_if_stuck(self.chunked)) is not None:
                raise error
            return None
        if self.static is not None:
            start_ns = self.static.start_ns(self._waiting.requests)
            if start_ns > now_ns:
                return start_ns
        if not may_go_on:
            if self._server.makes_room():
                return now_ns
            # Nothing can change before the next pass, so that pass would admit nothing, too.
            raise self._kv.error_if_stuck(self._waiting.requests[0]) or InvariantError(
                f"{len(self._waiting)} requests wait, none runs and none can be admitted"
            )
        return None


def preempt_for(
    candidate: SglangRequest,
    *,
    config: SchedulerConfig,
    adder: PrefillAdder,
    running: SglangBatch,
    release: Release,
) -> list[SglangRequest]:
    """Remove victims from the running batch so that `candidate` fits.

    All slots of the batch are taken. The budgets of `adder` get back what was reserved for the
    victims.

    Returns the victims in batch order. Empty: the running requests that are less important by more
    than the threshold would not free enough memory.
    """
    victims = _choose_victims(candidate, config, adder, running)
    if not victims:
        return []
    chosen = set(map(id, victims))
    in_order = [request for request in running.requests if id(request) in chosen]
    num_remaining = len(running)
    for victim in in_order:
        adder.budget.total_offset -= adder.reservation(victim)
    running.remove(in_order)
    for victim in in_order:
        num_remaining -= 1
        release(victim, num_remaining)
    return in_order


def _choose_victims(
    candidate: SglangRequest, config: SchedulerConfig, adder: PrefillAdder, running: SglangBatch
) -> list[SglangRequest]:
    sign = config.priority_sign
    # As in SGLang, `fill_len` is 0 until a pass first tries to admit the request. Until then its
    # prompt does not count here.
    missing = (
        candidate.fill_len
        - candidate.prefix_len
        + min(candidate.max_new_tokens, config.clip_max_new_tokens)
        - adder.budget.total_tokens
    )
    victims: list[SglangRequest] = []
    # Fairness comes before priorities: a victim that is aged would be first again at once, and the
    # two could preempt each other for ever.
    able = [request for request in running.requests if not request.is_aged]
    least_first = sorted(able, key=lambda r: (-sign * r.priority, -r.entry))
    for request in least_first:
        gap = (request.priority - candidate.priority) * sign
        if gap <= config.priority_scheduling_preemption_threshold:
            break
        victims.append(request)
        missing -= adder.reservation(request)
        if missing <= 0:
            return victims
    return []
