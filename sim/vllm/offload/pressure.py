"""When a secondary tier is too slow for what is stored, and which stores are dropped then.

vLLM 0.33.0: `EMABackpressureDetector`, `ThrottledDropPolicy` and `DropStorePolicy`
(v1/kv_offload/tiering/backpressure.py).
"""

from typing import Final

from sim.core.units import NS_PER_S
from sim.vllm.offload.settings import PressureSettings

_BYTES_PER_MIB: Final = 1 << 20
# After this number of stores in a row below the low mark none is dropped (`_HEALTHY_THRESHOLD`).
_HEALTHY: Final = 10
# Stores that fail raise the average to this multiple of the high mark (`_FAILURE_EMA_FACTOR`).
_FAILURE_FACTOR: Final = 4.0
# All stores are dropped this many times the high mark above it (`ramp_factor`).
_RAMP: Final = 2.0


class Pressure:
    """Of one tier. Times are given in nanoseconds, and compared in seconds, as vLLM's are."""

    def __init__(self, settings: PressureSettings) -> None:
        self._settings = settings
        self._average = 0.0
        self._is_high = False
        self._warmup: list[float] = []
        self._num_stored = 0
        self._updated_s = 0.0
        self._num_healthy = 0
        # When it has ended; 0: not since it began, or never.
        self._ended_s = 0.0
        self._num_cooling = 0
        self._num_failed = 0
        self._by_failures = False
        # Sum of the shares of stores to be dropped; when it reaches 1, a store is dropped.
        self._to_drop = 0.0

    def stored(self, num_chunks: int, submitted_ns: int, now_ns: int) -> None:
        """The scheduler learns that a store has ended."""
        now_s = now_ns / NS_PER_S
        self._is_under(now_s)
        settings = self._settings
        num_mib = num_chunks * settings.chunk_bytes / _BYTES_PER_MIB
        sample = (now_s - submitted_ns / NS_PER_S) / num_mib
        self._num_failed = 0
        self._num_stored += 1
        if self._num_stored <= settings.warmup_completions:
            self._warmup.append(sample)
            if self._num_stored == settings.warmup_completions:
                self._average = sum(self._warmup) / len(self._warmup)
                self._updated_s = now_s
            return
        self._average = settings.alpha * sample + (1 - settings.alpha) * self._average
        self._updated_s = now_s
        if self._average > settings.high_water_s:
            self._is_high = True
            self._ended_s = 0.0
            self._num_healthy = 0
        elif self._average < settings.low_water_s:
            if self._is_high:
                self._end(now_s)
            self._num_healthy += 1
        else:
            self._num_healthy = 0

    def failed(self, now_ns: int) -> None:
        """The scheduler learns that a store has failed."""
        now_s = now_ns / NS_PER_S
        self._is_under(now_s)
        self._num_failed += 1
        self._num_healthy = 0
        if self._num_failed >= self._settings.failure_threshold:
            self._average = max(self._average, self._settings.high_water_s * _FAILURE_FACTOR)
            self._updated_s = now_s
            self._is_high = self._by_failures = True
            self._ended_s = 0.0

    def lets_store(self, now_ns: int) -> bool:
        """Whether the next store is made."""
        now_s = now_ns / NS_PER_S
        is_under = self._is_under(now_s)
        if not is_under and self._num_healthy >= _HEALTHY:
            return True
        if not is_under and self._ended_s > 0 and now_s - self._ended_s < self._settings.cooldown_s:
            self._num_cooling += 1
            if self._num_cooling % 2 == 0:
                return False
        return not is_under or not (self._settings.drops_all or self._is_dropped())

    def _is_dropped(self) -> bool:
        high = self._settings.high_water_s
        share = min(1.0, max(0.0, self._average - high) / high / _RAMP) if high > 0 else 1.0
        if share >= 1.0:
            return True
        self._to_drop += share
        if self._to_drop >= 1.0:
            self._to_drop -= 1.0
            return True
        return False

    def _is_under(self, now_s: float) -> bool:
        """Whether there is pressure; the average falls while nothing is stored."""
        settings = self._settings
        is_known = self._num_stored >= settings.warmup_completions or self._by_failures
        if self._is_high and is_known:
            passed_s = now_s - self._updated_s
            if passed_s > 0 and settings.decay_half_life_s > 0:
                self._average *= 0.5 ** (passed_s / settings.decay_half_life_s)
                self._updated_s = now_s
            if self._average < settings.low_water_s:
                self._end(now_s)
        return self._is_high

    def _end(self, now_s: float) -> None:
        self._is_high = self._by_failures = False
        self._ended_s = now_s
        self._num_cooling = 0
