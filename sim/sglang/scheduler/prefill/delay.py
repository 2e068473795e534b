"""Holding prefills back until enough requests can be admitted together.

Rule 20 of docs/explanation/sglang.md. Source: SGLang 0.5.23, managers/prefill_delayer.py.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from sim.engine.scheduler import RankTalk
from sim.sglang.config import DelayerSettings, SchedulerConfig

# SGLANG_PREFILL_DELAYER_MAX_PREFILL_BS_WINDOW_SIZE
_KEPT_SIZES = 16


class Asked(NamedTuple):
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

    def allows(self, mine: Asked, now_ns: int) -> bool:
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

    def _must_wait(self, asked: Sequence[Asked], now_ns: int) -> bool:
        """All ranks can prefill: whether there are too few slots, or too few waiting requests."""
        if not self._has_too_few(asked, now_ns):
            return False
        is_first, self.is_first = self.is_first, False
        return not is_first

    def _has_too_few(self, asked: Sequence[Asked], now_ns: int) -> bool:
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
            mine = Asked(
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
            self._delayer.allows(Asked(), self._now_ns)
        self._delayer.note_size(num_rows or self._num_attempted)


def build_delayer(config: SchedulerConfig) -> PrefillDelayer | None:
    if config.prefill_delayer is None:
        return None
    return PrefillDelayer(
        config.prefill_delayer, config.max_running_requests, config.prefill_max_requests
    )
