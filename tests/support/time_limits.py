"""A test that takes too long fails, and shows where it was and what it had been given.

Not pytest-timeout: it makes such a test fail as an assertion does. Hypothesis then runs the example
again to make it smaller, and that hangs for good.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

MARKER = "time_limit"
# Again if something goes on all the same, as an event loop does.
_AGAIN_S = 20.0
_SHOWN_CHARACTERS = 4_000


class TimeLimitError(BaseException):
    """No `Exception`: neither the code that is tested nor Hypothesis goes on after it."""


@contextmanager
def time_limit(item: pytest.Item, usual_s: float) -> Iterator[None]:
    """End what runs here if it takes longer than this, or than the test's own limit.

    Compiled code is ended when it next calls Python's own; a loop that never does is left to
    pytest's faulthandler_timeout, which ends the process.
    """
    marker = item.get_closest_marker(MARKER)
    limit_s = marker.args[0] if marker else usual_s

    def end(_signal: int, frame: FrameType | None) -> None:
        raise TimeLimitError(f"took longer than {limit_s:g} s{_arguments_of(item, frame)}")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _arguments_of(item: pytest.Item, frame: FrameType | None) -> str:
    """What the test's function was called with, such as the example of a property."""
    code = _code_of(item)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    if frame is None or code is None:
        return ""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    lines = [f"  {name} = {_shown(frame.f_locals[name])}" for name in names]
    return "".join(f"\n{line}" for line in lines)


def _code_of(item: pytest.Item) -> CodeType | None:
    function: Any = getattr(item, "obj", None)
    handle = getattr(function, "hypothesis", None)
    function = getattr(handle, "inner_test", function)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) < _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
