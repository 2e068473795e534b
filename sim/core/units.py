"""Conversions to nanoseconds: inside the project time is an integer number of them (ADR-0002)."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000


def seconds_to_ns(seconds: float) -> int:
    """Round a number of seconds to whole nanoseconds."""
    return round(seconds * NS_PER_S)


def ms_to_ns(milliseconds: float) -> int:
    """Round a number of milliseconds to whole nanoseconds."""
    return round(milliseconds * NS_PER_MS)
