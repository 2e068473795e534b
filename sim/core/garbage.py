"""How often Python's garbage collector looks for objects that refer to each other in a circle."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects after which it looks; Python's default is 700.
_OBJECTS_A_COLLECTION = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect less often: a simulation has many live objects and leaves few circles behind."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], _OBJECTS_A_COLLECTION), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def skip_last_collections() -> None:
    """Skip Python's last collections at exit: the end of the process frees everything anyway."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
