"""When Python's garbage collector looks for cycles."""

import gc

from sim.core.garbage import rare_collections


def test_rare_collections_leave_the_collector_as_it_was():
    """Inside, one collection comes after millions of objects; nested ones change nothing."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with rare_collections():
        rare = gc.get_threshold()
        with rare_collections():
            assert gc.get_threshold() == rare > before
        assert gc.get_threshold() == rare
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, frozen)


def test_rare_collections_that_end_the_process_collect_nothing_more():
    """Not even when the next object is made."""
    collected = []
    gc.callbacks.append(lambda phase, info: collected.append(info))
    try:
        with rare_collections(ends_process=True):
            cycles = [[] for _ in range(10_000)]
        assert len(cycles) == 10_000
        assert not collected
    finally:
        gc.callbacks.pop()
        gc.unfreeze()
