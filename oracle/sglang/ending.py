"""Errors with which SGLang itself ends."""

import traceback
from collections.abc import Callable


def error_of(run: Callable[[], None]) -> str:
    """Let SGLang serve; returns the error with which it ends, in one line, or an empty string.

    An error of this driver, or of what it has replaced, is raised.
    """
    try:
        run()
    except (AssertionError, RuntimeError) as error:
        if "/sglang/srt/" not in traceback.extract_tb(error.__traceback__)[-1].filename:
            raise
        traceback.print_exc()
        return f"{type(error).__name__}: {error}".split("\n")[0]
    return ""
