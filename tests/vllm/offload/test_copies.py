"""When copies between the GPU and CPU memory begin and end: 10 ns for a block."""

from sim.engine.request import OutputTokens
from sim.vllm.offload.copies import CopyJob, QueuedCopies, SimpleCopies, StoreReports
from sim.vllm.request import RequestBlocks, VllmRequest
from sim.vllm.version_rules import VERSIONS
from tests.support.workloads import scripted

SPEC = scripted("a", (1, 9), output=1).spec
REQUEST = VllmRequest(SPEC, RequestBlocks(SPEC.prompt, OutputTokens(None, None)), limit=1)


def job(num_blocks, *, is_store=True):
    return CopyJob(REQUEST, (), range(num_blocks), is_store=is_store)


def begin(copies, now_ns, *, stores=(), loads=(), awaited=(), device_free_ns=0):
    return copies.begin(stores, loads, awaited, now_ns, device_free_ns)


def test_store_begins_with_the_next_step_when_the_steps_before_have_ended():
    copies, store = QueuedCopies(10.0), job(2)
    assert begin(copies, 100, stores=[store]) == 100
    assert (store.end_ns, copies.next_ns, copies.has_unsubmitted) == (0, None, True)
    assert begin(copies, 150, device_free_ns=160) == 150
    assert (store.end_ns, copies.next_ns, copies.has_unsubmitted) == (180, 180, False)
    assert copies.ended(179) == []
    assert copies.ended(180) == [store]
    assert copies.ended(200) == []


def test_load_begins_when_the_step_decided_with_it_has_ended():
    copies, load = QueuedCopies(10.0), job(3, is_store=False)
    begin(copies, 100, loads=[load])
    copies.step_ended(140)
    assert load.end_ns == 170


def test_each_direction_makes_one_copy_at_a_time():
    copies, stores, loads = QueuedCopies(10.0), [job(1), job(2)], [job(4, is_store=False), job(1)]
    begin(copies, 0, stores=stores, loads=loads)
    copies.step_ended(100)
    begin(copies, 100, device_free_ns=100)
    assert [each.end_ns for each in stores] == [110, 130]
    assert [each.end_ns for each in loads] == [140, 150]


def test_step_waits_for_copies_of_blocks_that_it_overwrites():
    """Of those decided with it, too; others begin with the next step."""
    copies, old, new, other = QueuedCopies(10.0), job(5), job(2), job(1)
    begin(copies, 0, stores=[old])
    assert begin(copies, 10, stores=[new, other], awaited={old, new}, device_free_ns=20) == 90
    assert (old.end_ns, new.end_ns, other.end_ns) == (70, 90, 0)


def test_old_load_begins_with_the_step_decided_with_it():
    copies, load = QueuedCopies(10.0, VERSIONS["0.19.0"]), job(3, is_store=False)
    begin(copies, 100, loads=[load], device_free_ns=140)
    assert (load.end_ns, copies.has_unsubmitted) == (130, False)


def test_old_workers_tell_of_stores_when_their_request_has_ended():
    """Of all of them at once; and of loads in any case."""
    reports, stores, load = StoreReports(), [job(1), job(2)], job(1, is_store=False)
    for each, end_ns in zip(stores, (10, 30), strict=True):
        each.end_ns = end_ns
    reports.decided(stores)
    assert reports.told([load, stores[0]], (), 10) == [load]
    assert reports.told((), [REQUEST], 20) == []
    assert reports.told([stores[1]], (), 30) == stores
    assert reports.told((), [REQUEST], 40) == []


def test_simple_store_begins_when_its_step_has_ended_and_a_load_with_its_step():
    """The loads of one decision are one copy."""
    copies, store = SimpleCopies(10.0), job(2)
    loads = [job(1, is_store=False), job(3, is_store=False)]
    assert begin(copies, 100, stores=[store], loads=loads, device_free_ns=130) == 100
    assert [load.end_ns for load in loads] == [140, 140]
    assert (store.end_ns, copies.has_unsubmitted) == (0, True)
    copies.step_ended(170)
    assert (store.end_ns, copies.has_unsubmitted, copies.next_ns) == (190, False, 140)
    assert copies.ended(190) == [*loads, store]


def test_simple_step_waits_for_all_copies_of_a_preemption():
    copies, store, load = SimpleCopies(10.0), job(2), job(5, is_store=False)
    begin(copies, 0, stores=[store], loads=[load])
    copies.step_ended(60)
    assert begin(copies, 61, awaited=[store, load]) == 80
