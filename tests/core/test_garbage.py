"""When Python's garbage collector looks for cycles."""

import gc

from sim.core.garbage import rare_collections
from sim.workers.executor import Task, TaskStatus, run_task
from sim.workload.traces.read import read_trace


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


def test_task_of_a_worker_is_not_interrupted_by_the_collector():
    """What a simulation has is looked at when the task is over, and most of it is gone."""
    before, collected, within = gc.get_threshold(), [], []

    def run(num_objects, _read_trace):
        objects = [[] for _ in range(num_objects)]
        within.append(len(collected))
        return len(objects)

    gc.collect()  # none is due before the task begins
    gc.callbacks.append(lambda phase, info: collected.append(info))
    try:
        outcome = run_task(Task("point", 10_000), run, read_trace)
    finally:
        gc.callbacks.pop()
    assert (outcome.status, outcome.result, within) == (TaskStatus.DONE, 10_000, [0])
    assert gc.get_threshold() == before
