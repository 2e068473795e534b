"""Which waiting requests a prefill pass may admit: any number of all of them, as in SGLang.

Otherwise static batching says when they may start, packing selects some of them, or a prefill is
held back until enough requests can be admitted together: rule 20 of docs/explanation/sglang.md
(SGLang 0.5.23, managers/prefill_delayer.py).
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from sim.engine.scheduler import RankTalk
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import DelayerSettings, PackSettings, SchedulerConfig, StaticSettings
from sim.sglang.request import SglangRequest


class StaticBatching:
    """All requests of a batch start together, and all end before the next batch starts.

    The prefill of a batch may take several passes. From its first decode step on, no request can
    join. A request that ends early is answered at once, but no other request takes its place.

    Attributes:
        num_open_places: requests that may be admitted before `may_join` is called again.
    """

    def __init__(self, settings: StaticSettings) -> None:
        self.num_open_places = 0
        self._settings = settings

    def may_join(self, waiting: Sequence[SglangRequest], now_ns: int, *, is_idle: bool) -> bool:
        """Whether a pass may admit requests; this call may start a batch.

        There is at least one `waiting` request. `is_idle`: no request runs and no result is
        awaited.
        """
        batch_size = self._settings.batch_size
        may_start = len(waiting) >= batch_size or now_ns >= self.start_ns(waiting)
        if not self.num_open_places and is_idle and may_start:
            self.num_open_places = min(batch_size, len(waiting))
        return self.num_open_places > 0

    def note_admitted(self, num_requests: int) -> None:
        self.num_open_places = max(self.num_open_places - num_requests, 0)

    def note_decode(self) -> None:
        """No prefill was launched, so that the batch decodes."""
        self.num_open_places = 0

    def start_ns(self, waiting: Sequence[SglangRequest]) -> int:
        """When an idle server's next batch starts if no request arrives."""
        return min([request.spec.arrival_ns for request in waiting]) + self._settings.max_wait_ns


class Admission(Protocol):
    """Selects the requests that a pass considers, in the order of the queue."""

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        """Called once a pass.

        `waiting` is in the order of the pass, which can admit `num_slots` requests.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class WholeQueue:
    """All requests, as in SGLang: the first one that does not fit ends the pass."""

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        return waiting


@mypyc_attr(allow_interpreted_subclasses=True)
class Pack:
    """The cheapest of the first `lookahead` requests that together fit into the prefill budget.

    Requests are selected by prompt length, shortest first, while the sum is within
    `max_prefill_tokens`. They are then considered in the order of the queue. If even the shortest
    does not fit, only the head of the queue is considered. Every `force_fifo_every`-th pass
    considers the whole queue, so that a long prompt is not skipped for ever. Aged requests
    (sim.sglang.scheduler.waiting.fairness) are never skipped.

    Example: a budget of 1,000 tokens and prompts of 900, 300, 500, 400 tokens. 300 and 400 are
    selected; 500 more would exceed the budget.
    """

    def __init__(self, settings: PackSettings, kv: KVCacheManager, budget_tokens: int) -> None:
        self._settings = settings
        self._kv = kv
        self._budget_tokens = budget_tokens
        self._num_passes = 0

    def candidates(
        self, waiting: Sequence[SglangRequest], num_slots: int
    ) -> Sequence[SglangRequest]:
        self._num_passes += 1
        if self._num_passes % self._settings.force_fifo_every == 0:
            return waiting
        seen = waiting[: self._settings.lookahead]
        others = [request for request in seen if not request.is_aged]
        chosen = self._cheapest(others, num_slots)
        if not chosen:
            chosen = {id(request) for request in seen[:1]}
        return [r for r in seen if r.is_aged or id(r) in chosen]

    def _cheapest(self, requests: Sequence[SglangRequest], num_slots: int) -> set[int]:
        chosen: set[int] = set()
        left = self._budget_tokens
        for cost, request in sorted(
            ((self._cost(request), request) for request in requests), key=lambda pair: pair[0]
        ):
            left -= cost
            if left < 0 or len(chosen) >= num_slots:
                break
            chosen.add(id(request))
        return chosen

    def _cost(self, request: SglangRequest) -> int:
        """Tokens of the prefill, rounded up to whole pages: the budget is spent in pages."""
        num_tokens = request.num_tokens
        if not self._settings.counts_cached and self._kv.cache.enabled:
            token_ids = request.kv.token_ids(num_tokens)
            start = request.kv.found or request.kv.start
            match = self._kv.cache.match(token_ids, num_tokens - 1, start)
            num_tokens -= match.num_tokens + match.num_host_tokens
        return self._kv.ceil_page(num_tokens)


def build_admission(
    settings: PackSettings | None,
    kv: KVCacheManager,
    budget_tokens: int,
    own: Admission | None = None,
) -> Admission | None:
    """The user's own admission, or the one for these settings; None: all requests, as in SGLang."""
    if own is not None or settings is None:
        return own
    return Pack(settings, kv, budget_tokens)


# SGLANG_PREFILL_DELAYER_MAX_PREFILL_BS_WINDOW_SIZE
_KEPT_SIZES = 16


class RankPass(NamedTuple):
    """What a rank tells the others of its pass.

    Attributes:
        can_prefill: a candidate fits, or the next chunk of a prompt is due. If not, the rest does
            not count.
        is_low: less of the pool is in use than `token_usage_low_watermark`.
        num_running, num_waiting: requests in the running batch, and in the queue.
        largest: rows of the largest of the rank's last prefills.
    """

    can_prefill: bool = False
    is_low: bool = False
    num_running: int = 0
    num_waiting: int = 0
    largest: int = 0


class PrefillDelayer:
    """Delays passes while few slots are free, so that prefills are larger; on all ranks together.

    All ranks have the same answers, since they know what all ask.

    Attributes:
        num_delayed: passes that it has delayed since it last let one go on.
    """

    def __init__(
        self,
        settings: DelayerSettings,
        max_running_requests: int,
        prefill_max_requests: int | None,
    ) -> None:
        self.settings = settings
        self.max_running_requests = max_running_requests
        self.prefill_max_requests = prefill_max_requests
        # Rows of the largest of the last prefills, delayed ones estimated.
        self.largest = 0
        self.is_first = True
        self.num_delayed = 0
        self.since_ns = 0
        self._sizes: deque[int] = deque(maxlen=_KEPT_SIZES)
        self._rank = 0
        self._talk: RankTalk | None = None

    def join_ranks(self, rank: int, talk: RankTalk) -> None:
        """From now on, ask all ranks of a group, of which this is one."""
        self._rank, self._talk = rank, talk

    def note_size(self, num_rows: int) -> None:
        """A pass has launched, or would have launched, this many rows."""
        if num_rows > 0:
            self._sizes.append(num_rows)
            self.largest = max(self._sizes)

    def allows(self, mine: RankPass, now_ns: int) -> bool:
        """Whether requests may be admitted in this pass; each rank asks this once a pass."""
        asked = [mine] if self._talk is None else self._talk.gather(self._rank, mine)
        able = [each for each in asked if each.can_prefill]
        is_free = not able or any(each.is_low for each in able)
        must_wait = not is_free and (len(able) < len(asked) or self._must_wait(able, now_ns))
        if must_wait and self.num_delayed < self.settings.max_delay_passes - 1:
            if not self.num_delayed:
                self.since_ns = now_ns
            self.num_delayed += 1
            return False
        self.num_delayed = 0
        return True

    def _must_wait(self, asked: Sequence[RankPass], now_ns: int) -> bool:
        """All ranks can prefill: whether there are too few slots, or too few waiting requests."""
        if not self._has_too_few(asked, now_ns):
            return False
        is_first, self.is_first = self.is_first, False
        return not is_first

    def _has_too_few(self, asked: Sequence[RankPass], now_ns: int) -> bool:
        num_running = max([each.num_running for each in asked])
        largest = max([each.largest for each in asked])
        if self.max_running_requests - num_running < largest:
            return True
        ratio = self.settings.queue_min_ratio
        if ratio is None or not num_running:
            return False
        most = largest if self.prefill_max_requests is None else self.prefill_max_requests
        wanted = min(int(num_running * ratio), most)
        is_late = self.num_delayed > 0 and now_ns - self.since_ns >= self.settings.max_delay_ns
        return max([each.num_waiting for each in asked]) < wanted and not is_late


class DelayedPass:
    """One pass under the delayer; `allows` is asked for the first candidate that fits."""

    def __init__(
        self, delayer: PrefillDelayer, *, token_usage: float, num_waiting: int, now_ns: int
    ) -> None:
        self._delayer = delayer
        self._token_usage = token_usage
        self._num_waiting = num_waiting
        self._now_ns = now_ns
        self._is_asked = self._allows = False
        self._num_attempted = 0

    def allows(self, num_running: int) -> bool:
        """Whether requests may be admitted; `num_running` are in the running batch now."""
        free = max(self._delayer.max_running_requests - num_running, 1)
        self._num_attempted = max(self._num_attempted, min(max(self._num_waiting, 1), free))
        if not self._is_asked:
            self._is_asked = True
            watermark = self._delayer.settings.token_usage_low_watermark
            is_low = watermark is not None and self._token_usage < watermark
            mine = RankPass(
                can_prefill=True,
                is_low=is_low,
                num_running=num_running,
                num_waiting=self._num_waiting,
                largest=self._delayer.largest,
            )
            self._allows = self._delayer.allows(mine, self._now_ns)
        return self._allows

    def end(self, num_rows: int) -> None:
        """The pass is over and launched `num_rows` rows."""
        if not self._is_asked:
            self._delayer.allows(RankPass(), self._now_ns)
        self._delayer.note_size(num_rows or self._num_attempted)


def build_delayer(config: SchedulerConfig) -> PrefillDelayer | None:
    if config.prefill_delayer is None:
        return None
    return PrefillDelayer(
        config.prefill_delayer, config.max_running_requests, config.prefill_max_requests
    )
