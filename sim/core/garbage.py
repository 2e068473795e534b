"""How often Python looks for garbage that holds itself alive."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects before it looks; by default 700 are enough.
_OBJECTS_A_COLLECTION = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look seldom: where few cycles are left behind and there are many objects to look at."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], _OBJECTS_A_COLLECTION), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def skip_last_collections() -> None:
    """Have Python not look through all objects at its exit: the process frees them anyway."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
