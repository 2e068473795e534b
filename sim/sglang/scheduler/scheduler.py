"""Decides the next batch: a prefill batch if one can be formed, otherwise a decode batch.

Rules 7, 11, 13, 16, 17 and 18 of docs/explanation/sglang.md (SGLang 0.5.23's
get_next_batch_to_run).
"""

from collections.abc import Iterable, Sequence

from sim.core.batch import ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.engine.scheduler import NEVER_AGES_NS, Decision
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.batching import build_batching
from sim.sglang.scheduler.decoding import SglangDecoding
from sim.sglang.scheduler.packing import build_admission
from sim.sglang.scheduler.preemption import preempt_for
from sim.sglang.scheduler.prefill_adder import PrefillAdder, Verdict
from sim.sglang.scheduler.prefill_delay import DelayedPass, build_delayer, build_interval


class SglangScheduler(SglangDecoding):
    """The scheduler of an SGLang server.

    Attributes:
        batching: whether waiting requests may join the running ones.
        chunked: the request whose prompt is prefilled chunk by chunk; it does not decode yet.
        interval: whether running requests decode before the next prefill.
        preempts: whether a waiting request may preempt running ones.
    """

    def __init__(
        self, config: SchedulerConfig, *, kv: KVCacheManager, policy: SchedulePolicy
    ) -> None:
        super().__init__(config, kv, policy)
        self._policy = policy
        self._admission = build_admission(
            config.admission, kv, config.max_prefill_tokens, config.own_rule("admission")
        )
        self.batching = build_batching(config.static_batching)
        self.chunked: SglangRequest | None = None
        self.interval = build_interval(config)
        self._delayer = build_delayer(config)
        self.preempts = config.enable_priority_scheduling and not config.disable_priority_preemption
        # SGLang tries a pass at every decision if there are two pools, too (rule 7).
        self._clears_full = self.preempts or kv.limits_passes
        self._last: SglangLaunch | None = None
        self._drops_chunk = False

    # ---- requests ------------------------------------------------------------------------------

    def abort(self, request: SglangRequest, in_flight: Sequence[SglangLaunch]) -> bool:
        """A waiting request is gone at once, a chunked one with the next decision (rule 21).

        Any other ends with its next result.
        """
        if request.status is Status.WAITING:
            self.waiting.remove(request)
            return True
        if request is self.chunked:
            self._drops_chunk = True
        return False

    def look_for_late(self, now_ns: int) -> Sequence[SglangRequest]:
        self._now_ns = now_ns
        config, late = self._config, list[SglangRequest]()
        if (limit_ns := config.waiting_timeout_ns) is not None:
            late += [r for r in self.waiting.requests if now_ns - r.entered_ns > limit_ns]
        if (limit_ns := config.running_timeout_ns) is not None:
            late += [r for r in self._in_batches() if now_ns - r.scheduled_ns > limit_ns]
        return late

    def _in_batches(self) -> Iterable[SglangRequest]:
        """The live requests of the running batch and of the last launch."""
        prefilled = [] if self._last is None else self._last.prefill
        rows = dict.fromkeys([*self.running.requests, *self.turns.resting, *prefilled])
        return [request for request in rows if request.status is Status.RUNNING]

    def _next_late_ns(self) -> int:
        """The first time at which a request is late."""
        config, times_ns = self._config, [NEVER_AGES_NS]
        if (limit_ns := config.waiting_timeout_ns) is not None:
            times_ns += [r.entered_ns + limit_ns + 1 for r in self.waiting.requests]
        if (limit_ns := config.running_timeout_ns) is not None:
            times_ns += [r.scheduled_ns + limit_ns + 1 for r in self._in_batches()]
        return min(times_ns)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting.requests)

    def waiting_requests(self) -> Iterable[SglangRequest]:
        return self.waiting.requests

    def requests_elsewhere(self) -> Iterable[SglangRequest]:
        """The chunked request, rows of the last prefill (they decode next), resting requests."""
        chunked = [] if self.chunked is None else [self.chunked]
        return [*chunked, *([] if self._last is None else self._last.prefill), *self.turns.resting]

    # ---- the step ------------------------------------------------------------------------------

    def decide(self, now_ns: int, in_flight: SglangLaunch | None) -> SglangDecision:
        decision: SglangDecision = Decision()
        self._decision = decision
        self._made_room = False
        self._now_ns = now_ns
        if self._drops_chunk:
            self._drop_chunk()
        self._kv.begin_decision(now_ns, self.device_free_ns)
        self.turns.gather()
        self._checkpoint_chunk()
        self._merge_last_prefill()
        if self._drop_finished():
            self.is_full = False
        if self.interval.defers(self._num_rows):
            launch = self._decode(in_flight)
        else:
            launch = self._prefill(now_ns, in_flight)
            if launch is None:
                self.batching.note_decode()
                launch = self._decode(in_flight)
        if launch is not None:
            self.interval.launched(launch.mode)
        decision.waited_ns = self._kv.waited_ns
        self._last = decision.launch = launch
        return decision

    def _drop_chunk(self) -> None:
        """The chunked request's client has given up: free its KV, and cache nothing of it."""
        self._drops_chunk = False
        request, self.chunked = self.chunked, None
        if request is not None:
            self._release(request)
            request.status = Status.ABORTED
            self._decision.aborted.append(request)

    def _checkpoint_chunk(self) -> None:
        """The chunk that was launched last becomes the prefix of the next chunk (rule 14)."""
        request = self.chunked
        if request is not None and request.extend_len > 0:
            self.prefill_computed(request)
            request.chunk_computed()

    def _merge_last_prefill(self) -> None:
        last, running = self._last, self.running
        if last is None or last.mode is ForwardMode.DECODE:
            return
        rows = [
            request
            for request in last.prefill
            if request not in last.chunked
            and request is not self.chunked
            and request.status is Status.RUNNING
        ]
        if last.mode is ForwardMode.MIXED:
            # The mixed batch replaces the running batch; its full flag is not set (rule 7).
            running.prepend(rows)
            self.is_full = False
            self.kept_extend_tokens = last.num_new_tokens
            return
        if rows and not self._has_rows:
            self.kept_extend_tokens = last.num_new_tokens
        if len(rows) < len(last.prefill) or not self._has_rows:
            self.is_full = False
        running.append(rows)

    def note_group(self, modes: Sequence[ForwardMode]) -> None:
        for mode in modes:
            self.interval.launched(mode)

    # ---- prefill -------------------------------------------------------------------------------

    def _may_prefill(self, now_ns: int, in_flight: SglangLaunch | None) -> bool:
        """Whether to try a prefill pass; also updates the full flag (rule 7)."""
        has_newly_aged = self.waiting.next_aging_ns <= now_ns
        if self.chunked is None and not self._may_join(now_ns, in_flight):
            self.waiting.update_next_aging(now_ns)
            return False
        if self._clears_full or not self._has_rows or has_newly_aged:
            self.is_full = False
        if self.chunked is not None:
            return True
        if self.is_full or not self.waiting.requests or self._awaits_slots:
            return False
        if self._num_free_slots(0) <= 0 and not self.preempts:
            self.is_full = True
            self.waiting.update_next_aging(now_ns)
            return False
        return True

    def _may_join(self, now_ns: int, in_flight: SglangLaunch | None) -> bool:
        """Whether waiting requests may join; True if none waits."""
        if not self.waiting.requests:
            return True
        is_idle = in_flight is None and not self.running.requests
        return self.batching.may_join(self.waiting.requests, now_ns, is_idle=is_idle)

    @property
    def _awaits_slots(self) -> bool:
        """Too few slots are free yet: they are to be taken together (rule 20)."""
        fewest = min(self._config.min_free_slots_delay, self._config.max_running_requests)
        return fewest > 1 and self._num_rows > 0 and self._num_free_slots(0) < fewest

    def _prefill(self, now_ns: int, in_flight: SglangLaunch | None) -> SglangLaunch | None:
        if self._delayer is None:
            return self._pass(now_ns, in_flight, None)
        delay = DelayedPass(
            self._delayer,
            token_usage=self._kv.used_share,
            num_waiting=len(self.waiting),
            now_ns=now_ns,
        )
        launch = self._pass(now_ns, in_flight, delay)
        delay.end(0 if launch is None else len(launch.prefill) + len(launch.decode))
        return launch

    def _pass(
        self, now_ns: int, in_flight: SglangLaunch | None, delay: DelayedPass | None
    ) -> SglangLaunch | None:
        if not self._may_prefill(now_ns, in_flight):
            return None
        self.waiting.order(now_ns, self.running.requests)
        adder = PrefillAdder(
            self._config,
            self._kv,
            self.running,
            self.ratio.current,
            ended=self._ended,
            cuts_while_chunked=self._policy.cuts_while_chunked,
            others_run=self._others_run,
            delay=delay,
        )
        continued = self.chunked
        if continued is not None:
            self.chunked = self._continue_chunk(continued, adder)
            if not (adder.admitted or self._kv.limits_passes):
                return None
        victims = self._admit_waiting(adder, continued)
        joining = [request for request in adder.admitted if request is not continued]
        self.waiting.leave(joining)
        self.batching.note_admitted(len(joining))
        for victim in victims:
            self.enter(victim)
        self._note_dropped()
        if not adder.admitted:
            return None
        if adder.new_chunked is not None:
            self.chunked = adder.new_chunked
        return self._launch_prefill(adder.admitted, continued, in_flight)

    def _continue_chunk(self, request: SglangRequest, adder: PrefillAdder) -> SglangRequest | None:
        request.fill_len = request.num_tokens
        limit = None
        if adder.budget.chunk_tokens is not None:
            limit = self.waiting.chunk_limit(request, adder.budget.chunk_tokens)
        return adder.continue_chunk(request, limit)

    def _admit_waiting(
        self, adder: PrefillAdder, continued: SglangRequest | None
    ) -> list[SglangRequest]:
        """Offer waiting requests to the adder in order; returns the requests preempted for them."""
        num_held = 0 if continued is None else 1
        num_open_places = self.batching.num_open_places + num_held
        all_victims: list[SglangRequest] = []
        candidates = self._admission.candidates(
            self.waiting.requests, self._num_free_slots(num_held)
        )
        for request in candidates:
            if len(adder.admitted) >= num_open_places:
                break
            if self._rules.looks_at_budget_first and adder.budget.verdict() is Verdict.OTHER:
                break
            if len(adder.admitted) >= self._num_free_slots(num_held):
                self.is_full = True
            if self.is_full:
                victims = self._preempt_for(request, adder) if self.preempts else []
                if not victims:
                    break
                all_victims += victims
            self._match_prefix(request)
            verdict = adder.add(request, has_chunked=self.chunked is not None)
            if verdict is not Verdict.CONTINUE:
                if request not in adder.admitted[-1:]:
                    self._kv.refuse_candidate(request.kv)
                if verdict is Verdict.NO_TOKEN:
                    self.is_full = bool(adder.admitted) or self._has_rows
                break
        return all_victims

    def _preempt_for(self, request: SglangRequest, adder: PrefillAdder) -> list[SglangRequest]:
        victims = preempt_for(
            request,
            config=self._config,
            adder=adder,
            running=self.running,
            release=self._release_for_later,
        )
        if victims:
            self._decision.preempted.append((request, victims))
            for victim in victims:
                victim.preemptions += 1
        return victims

    def _launch_prefill(
        self,
        admitted: list[SglangRequest],
        continued: SglangRequest | None,
        in_flight: SglangLaunch | None,
    ) -> SglangLaunch:
        self._kv.begin_prefill()
        self._kv.extend((r.kv, r.prefix_len, r.extend_len) for r in admitted)
        for request in admitted:
            request.seq_len = request.extend_end
            request.status = Status.RUNNING
        self.num_slots_used += len(admitted) - (continued is not None)
        chunked = () if self.chunked is None else (self.chunked,)
        launch = self._new_launch(ForwardMode.EXTEND, admitted, [], chunked)
        launch.num_new_tokens = sum(request.extend_len for request in admitted)
        if self._config.mixing and self.running.requests:
            self._mix_in_decode(launch, in_flight)
        self.waiting.processed_tokens += launch.num_new_tokens
        return launch

    # ---- state, for the engine and logs --------------------------------------------------------

    def idle(self, now_ns: int, decision: SglangDecision) -> int | None:
        if self.running.requests:
            return None
        change_ns = None if self.interval.deferred else self._kv.next_change_ns(now_ns)
        return self._idle(now_ns, decision) if change_ns is None else change_ns

    def _idle(self, now_ns: int, decision: SglangDecision) -> int | None:
        if self.chunked is not None:
            may_go_on = self.interval.deferred or decision.takes_out or self._made_room
            error = None if may_go_on else self._kv.error_if_stuck(self.chunked)
            if error is not None:
                raise error
            return None
        if not self.waiting.requests:
            self.ratio.reset()
            self.interval.reset()
            return None
        if self.interval.deferred:
            return None
        start_ns = self.batching.start_ns(self.waiting.requests)
        if start_ns is not None and start_ns > now_ns:
            return start_ns
        if not (decision.takes_out or self._made_room):
            # Nothing can change before the next pass, so that pass would admit nothing, too.
            raise self._kv.error_if_stuck(self.waiting.requests[0]) or InvariantError(
                f"{len(self.waiting)} requests wait, none runs and none can be admitted"
            )
        return None

    @property
    def next_aging_ns(self) -> int:
        next_ns = self.waiting.next_aging_ns
        if (change_ns := self._kv.next_change_ns(0)) is not None:
            next_ns = min(next_ns, change_ns)
        return min(next_ns, self._next_late_ns()) if self.has_limits else next_ns

    @property
    def repeats(self) -> bool:
        if self.chunked is not None or self.turns.resting or not self.interval.is_over:
            return False
        # A pass changes state even if it admits nothing: it orders the queue and marks prefixes.
        makes_pass = self.batching.num_open_places and (self._clears_full or not self.is_full)
        return not (self.waiting.requests and makes_pass)

    def decode_again(self, num_steps: int) -> list[float]:
        self.waiting.processed_tokens += num_steps * self.kept_extend_tokens
        return self.ratio.decay_steps(num_steps)

    def decoded_again(self, num_steps: int) -> None:
        overlaps = self._config.overlaps
        self._kv.decoded_again(self.running.requests, num_steps, overlaps=overlaps)

    @property
    def num_running(self) -> int:
        return len(self.running.requests) + len(self.turns.resting)

    def num_running_shown(self, *, is_mixed: bool) -> int:
        """0 after a mixed launch, as in SGLang."""
        return 0 if is_mixed else self.num_running

    @property
    def new_token_ratio(self) -> float:
        return self.ratio.current

    @property
    def chunked_rid(self) -> str | None:
        return self.chunked.rid if self.chunked is not None else None
