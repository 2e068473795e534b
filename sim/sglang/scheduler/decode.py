"""Decode steps: their rows, room for them, and decode rows beside a prefill.

Rules 10, 11, 16 and 18 of docs/explanation/sglang.md (SGLang 0.5.23's `update_running_batch`). If a
step does not fit, running requests are put back: retraction. The new-token ratio is the share of
running requests' remaining output that admission reserves.
"""

from collections.abc import Callable, Iterable, Sequence

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.records import leave_out_finishing
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangBatch, SglangLaunch, SglangRequest
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting.queue import Queues


class NewTokenRatio:
    """Starts high, falls with every pure decode step, and is computed anew after a retraction."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._initial = min(config.init_new_token_ratio * config.schedule_conservativeness, 1.0)
        self._floor = min(self._initial * config.min_new_token_ratio_factor, 1.0)
        self._decay = (self._initial - self._floor) / config.new_token_ratio_decay_steps
        self._retract_decode_steps = config.retract_decode_steps
        self.current = self._initial

    def decay(self) -> None:
        self.current = max(self.current - self._decay, self._floor)

    def decay_steps(self, num_steps: int) -> list[float]:
        """Decay `num_steps` times; returns the ratio after each step.

        Each step is one subtraction, so rounding is the same as in single steps.
        """
        ratio, ratios = self.current, []
        for _ in range(num_steps):
            if ratio == self._floor:
                break
            ratio -= self._decay
            if ratio < self._floor:
                ratio = self._floor
            ratios.append(ratio)
        self.current = ratio
        return ratios + [self._floor] * (num_steps - len(ratios))

    def reset(self) -> None:
        """Return to the initial ratio; the scheduler calls this when it has no requests."""
        self.current = self._initial

    def after_retraction(self, remaining: Iterable[tuple[int, int]]) -> None:
        """Set the ratio from `(num_generated, max_new_tokens)` of each remaining request."""
        rows = list(remaining)
        num_generated = sum(generated for generated, _ in rows)
        num_limit = sum(limit for _, limit in rows)
        expected = num_generated + self._retract_decode_steps * len(rows)
        self.current = min(1.0, expected / (num_limit + 1))


# Frees the KV of a request that was removed from the running batch; the second argument is the
# number of rows that remain.
Release = Callable[[SglangRequest, int], None]
# The output tokens of a row that are known.
Count = Callable[[SglangRequest], int]
# Whether the KV of a request that is to be removed is kept, so that it can come back.
Keep = Callable[[SglangRequest], bool]
# The new pages that rows need for their next decode step.
PageNeed = Callable[[list[SglangRequest]], int]


def num_generated(request: SglangRequest) -> int:
    return request.num_generated


def _computed_again(_request: SglangRequest) -> bool:
    """The request can always come back: its KV is computed again."""
    return True


def retract(
    config: SchedulerConfig,
    kv: KVCacheManager,
    running: SglangBatch,
    release: Release,
    need: PageNeed,
    count: Count = num_generated,
    keep: Keep = _computed_again,
) -> tuple[list[SglangRequest], list[SglangRequest]]:
    """Remove requests from the running batch until the next decode step fits.

    With SGLang 0.5.1: until `retract_decode_steps` tokens are free for each row.

    At least one request is retracted; one whose KV cannot be kept is aborted instead. The last one
    is not retracted: if it does not fit alone, it is aborted. As in SGLang, the rows that stay are
    then ordered by preference.

    Returns the retracted requests and the aborted ones, each in the order of removal.
    """
    preferred = sorted(running.requests, key=_preference(config, count), reverse=True)
    retracted: list[SglangRequest] = []
    aborted: list[SglangRequest] = []
    is_first = True
    while len(preferred) > 1 and (is_first or _must_shrink(config, preferred, kv, need)):
        is_first = False
        removed = retracted if keep(preferred[-1]) else aborted
        removed.append(_pop_row(preferred, running, release))
    if len(preferred) == 1 and not kv.can_decode(need(preferred)):
        aborted.append(_pop_row(preferred, running, release))
    running.reorder(preferred)
    return retracted, aborted


def _preference(
    config: SchedulerConfig, count: Count
) -> Callable[[SglangRequest], tuple[int, int, int]]:
    """Sort key; the smallest is retracted first.

    Compared in this order: priority (with `retraction_policy: priority`), tokens generated, and
    shortness of the prompt.
    """
    sign = config.priority_sign
    by_priority = config.retraction_policy == "priority"

    def key(request: SglangRequest) -> tuple[int, int, int]:
        priority = -sign * request.priority if by_priority else 0
        return priority, count(request), -request.prompt_len

    return key


def _must_shrink(
    config: SchedulerConfig, rows: list[SglangRequest], kv: KVCacheManager, need: PageNeed
) -> bool:
    if config.rules.retracts_for_steps:
        return kv.free_tokens < len(rows) * config.retract_decode_steps
    return not kv.can_decode(need(rows))


def _pop_row(rows: list[SglangRequest], running: SglangBatch, release: Release) -> SglangRequest:
    request = rows.pop()
    running.remove([request])
    release(request, len(rows))
    return request


class DecodeManager:
    """Makes decode steps of the running batch."""

    def __init__(self, server: SglangServer, queues: Queues) -> None:
        self._server = server
        self._config = server.config
        self._kv = server.kv
        self._steps = server.steps
        self._queues = queues
        self.ratio = NewTokenRatio(server.config)

    def next_launch(self, in_flight: SglangLaunch | None) -> SglangLaunch | None:
        """A step of the running batch; None: no row can decode now."""
        server, batch = self._server, self._server.batch
        running, turns = batch.running, batch.turns
        if batch.ended:
            batch.ended = []
            batch.is_full = False
            server.has_dropped_rows = True
        if not running.requests:
            return None
        num_before = len(running.requests)
        finishing: Sequence[SglangRequest] = ()
        if server.rules.leaves_out_finishing:
            finishing = leave_out_finishing(in_flight, running)
        if not running.requests:
            batch.is_full = False
            return None
        turns.rest()
        if self._kv.can_decode(self._steps.num_new_pages(running)):
            self.ratio.decay()
        elif finishing:
            # The result in flight will free the pages of finishing requests: wait for it (rule 18).
            batch.is_full = False
            return None
        else:
            turns.gather()
            self._retract(running)
            turns.rest()
        if batch.num_running < num_before:
            batch.is_full = False
        if not running.requests:
            return None
        self._begin(running)
        self._queues.waiting.processed_tokens += batch.kept_extend_tokens
        launch = self._steps.launch(ForwardMode.DECODE, [], running.requests)
        if self._config.decode_max_requests is not None:
            launch.resting, launch.resumed = turns.resting, running.requests
        return launch

    def mix_in(self, in_flight: SglangLaunch | None) -> list[SglangRequest]:
        """The rows that decode in the same step as a prefill, if their tokens fit (rule 16)."""
        batch, kv = self._server.batch, self._kv
        running = batch.running
        batch.ended = []
        if self._server.rules.leaves_out_finishing and leave_out_finishing(in_flight, running):
            batch.is_full = False
        rows = running.requests
        if not rows or not kv.can_decode(self._steps.num_new_pages(running)):
            return []
        self._begin(running)
        kv.note_mixed(rows)
        for request in rows:
            # SGLang sets this for every row of a mixed batch. Preemption reads it if the row is
            # later put back into the queue and waits for a slot.
            request.fill_len = request.num_tokens
        return rows

    def _begin(self, running: SglangBatch) -> None:
        """Allocate the KV of a decode step of all rows."""
        self._kv.begin_decode(running.requests)
        self._steps.begin(running)

    def _make_room(self, num_pages: int) -> None:
        """The last row needs this number of pages: let kept prefixes go for it."""
        while not self._kv.can_decode(num_pages) and self._server.makes_room():
            pass

    def _retract(self, running: SglangBatch) -> None:
        server, queues = self._server, self._queues
        decision = server.decision
        most_pages = max([self._steps.num_new_pages_of([row]) for row in running.requests])

        def release(request: SglangRequest, num_left: int) -> None:
            server.release_for_later(request, num_left)
            if num_left == 1:
                self._make_room(most_pages)

        if len(running) == 1:
            self._make_room(most_pages)
        retracted, aborted = retract(
            self._config,
            self._kv,
            running,
            release,
            self._steps.num_new_pages_of,
            queues.num_known_outputs,
            queues.keeps_kv,
        )
        self.ratio.after_retraction(
            (queues.num_known_outputs(row), row.max_new_tokens) for row in running.requests
        )
        decision.retracted = retracted
        decision.aborted += aborted
        for request in aborted:
            request.status = Status.ABORTED
        for request in retracted:
            request.retractions += 1
            request.looked_up_len = request.num_lookups = 0
            queues.enter(request)
        server.note_dropped()
