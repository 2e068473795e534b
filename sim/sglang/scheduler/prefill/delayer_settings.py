"""Settings of the prefill delayer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DelayerSettings:
    """Settings of the prefill delayer.

    Attributes:
        max_delay_passes: a pass after this many is not delayed.
        token_usage_low_watermark: below this share of the pool in use nothing is delayed; None:
            this does not count.
        queue_min_ratio: passes are also delayed while fewer requests wait than this share of the
            running ones; None: they are not.
        max_delay_ns: a wait for the queue ends after this time.
    """

    max_delay_passes: int
    token_usage_low_watermark: float | None
    queue_min_ratio: float | None
    max_delay_ns: int
