"""Conversions to whole nanoseconds, the unit of time in all code (ADR-0002)."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000
# Times end here: 146 years. Sums and differences of two times still fit 64 bits.
MAX_TIME_NS = 1 << 62


def seconds_to_ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def ms_to_ns(milliseconds: float) -> int:
    return round(milliseconds * NS_PER_MS)
