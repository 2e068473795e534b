"""How often Python's garbage collector looks for cycles: objects that refer to each other."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# The collector looks each time there are this many new objects, about a gigabyte of them. Python
# 3.11's default is 700.
_OBJECTS_PER_COLLECTION = 5_000_000
_USUAL = (700, 10, 10)


@contextmanager
def rare_collections(*, ends_process: bool = False) -> Iterator[None]:
    """Inside, collect less often: a simulation has many live objects and leaves almost no cycles.

    `ends_process`: nothing but the end of the process follows, which frees everything, so the
    collection that comes due at the end is left out, too.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], _OBJECTS_PER_COLLECTION), *thresholds[1:])
    try:
        yield
    finally:
        if ends_process:
            gc.freeze()
        gc.set_threshold(*thresholds)


@contextmanager
def usual_collections() -> Iterator[None]:
    """Inside, collect as Python does by default, but for what is there already.

    For servers: web frameworks leave cycles with every request. Collected rarely, these would grow
    to a gigabyte, and then halt the server for a second.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def skip_last_collections() -> None:
    """Skip Python's last collections at exit: the end of the process frees everything anyway.

    The collector ignores frozen objects, so `gc.freeze` at exit leaves it nothing to look at.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
