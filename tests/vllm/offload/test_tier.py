"""A tier below CPU memory: who takes which job, what is looked up, and when stores are dropped."""

import pytest

from sim.core.errors import InputError
from sim.engine.store import Store, StoreSettings
from sim.vllm.config import VllmConfig
from sim.vllm.offload.policies import Access, ChunkKey
from sim.vllm.offload.pressure import Pressure
from sim.vllm.offload.settings import OffloadSettings, PressureSettings, TierSettings
from sim.vllm.offload.tier import SecondaryTier
from sim.vllm.offload.tiers import Tiers
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

SECOND = 1_000_000_000
MIB = 1 << 20
STORE = StoreSettings(lookup_ns=50.0, read_ns_per_page=10.0, write_ns_per_page=20.0)


def keys(name, num_chunks):
    return [ChunkKey(place, 0, 100 * name + place) for place in range(num_chunks)]


def tier(kind="fs", *, draw=lambda: 1.0, store=STORE, readers=1, writers=1):
    settings = TierSettings(kind=kind, n_read_threads=readers, n_write_threads=writers, store=store)
    return SecondaryTier(settings, Store(store, draw), blocks_per_chunk=1)


def with_chunks(below, *names, num_chunks=4):
    """Chunks of these names are there from the beginning."""
    for name in names:
        below.write(keys(name, num_chunks))
    below.begin_decision(10**6)
    return below


def ended(below, now_ns):
    return [job.keys[0].prefix // 100 for job in below.begin_decision(now_ns)]


def promote(below, now_ns, *names, num_chunks=4):
    below.begin_decision(now_ns)
    for name in names:
        access = Access()
        for key in keys(name, num_chunks):
            below.promote(key, access)
    below.end_decision(now_ns)


def test_a_chunk_is_asked_for_once_and_known_when_its_batch_is_looked_up():
    """Two requests of one decision: 50 ns for each of them, the second one's chunks in part."""
    below, now_ns = with_chunks(tier(), 1), 10**6
    first, second, late = Access(), Access(), Access()
    assert [below.look_up(key, first) for key in keys(1, 2)] == [None, None]
    assert [below.look_up(key, second) for key in [*keys(1, 1), *keys(2, 1)]] == [None, None]
    below.end_decision(now_ns)
    below.begin_decision(now_ns + 99)
    assert below.look_up(keys(1, 1)[0], late) is None
    below.begin_decision(now_ns + 100)
    assert [below.look_up(key, late) for key in keys(1, 2)] == [True, True]
    assert below.look_up(keys(2, 1)[0], second) is False


def test_an_answer_holds_until_all_who_looked_are_over():
    """What is written later is not found before that."""
    below, now_ns = tier(), 10**6
    first, second = Access(), Access()
    for access in (first, second):
        below.look_up(keys(1, 1)[0], access)
    below.end_decision(now_ns)
    below.write(keys(1, 1))
    below.begin_decision(2 * now_ns)
    for over in (first, second):
        assert below.look_up(keys(1, 1)[0], second) is False
        below.forget(over)
    assert below.look_up(keys(1, 1)[0], Access()) is None


def test_threads_take_their_own_jobs_first():
    """While the writer writes, the reader reads twice, although a store waits for longer."""
    below, now_ns = with_chunks(tier(), 1, 2), 10**6
    below.write(keys(3, 4))
    promote(below, now_ns, 1)
    below.write(keys(4, 4))
    promote(below, now_ns, 2)
    # 40 ns for each load, and 80 ns for each store.
    assert ended(below, now_ns + 40) == [1]
    assert sorted(ended(below, now_ns + 80)) == [2, 3]
    assert ended(below, now_ns + 160) == [4]


def test_a_writer_without_stores_reads_too():
    """Two loads at once share the bandwidth."""
    below, now_ns = with_chunks(tier(), 1, 2), 10**6
    promote(below, now_ns, 1, 2)
    assert ended(below, now_ns + 79) == []
    assert ended(below, now_ns + 80) == [1, 2]


@pytest.mark.parametrize(("kind", "num_done"), [("fs", 2), ("obj", 0)])
def test_a_failed_read_keeps_what_came_before_it_in_files_alone(kind, num_done):
    """The third page cannot be read."""
    store = StoreSettings(read_ns_per_page=10.0, failed_read_share=0.5)
    draws = iter([0.9, 0.9, 0.1, 0.9])
    below = with_chunks(tier(kind, draw=lambda: next(draws), store=store), 1)
    promote(below, 10**6, 1)
    (job,) = below.begin_decision(2 * 10**6)
    assert job.num_done == num_done


def test_files_that_are_there_are_not_written_again():
    for kind, left_ns in (("fs", 0), ("obj", 80)):
        below = with_chunks(tier(kind), 1)
        below.write(keys(1, 4))
        assert ended(below, 10**6 + left_ns) == [1]


def test_the_first_tier_that_is_known_to_have_a_chunk_brings_it_up():
    """The second one answers after 50 ns, and the first one after 500, if it has to be asked."""
    slow = StoreSettings(lookup_ns=500.0, read_ns_per_page=10.0, write_ns_per_page=20.0)
    first, second = tier(store=slow), with_chunks(tier("obj"), 1)
    below, now_ns, access = Tiers((first, second)), 10**6, Access()
    (key,) = keys(1, 1)
    below.begin_decision(now_ns)
    assert below.look_up(key, access) is None
    assert not below.end_decision(now_ns)
    below.begin_decision(now_ns + 50)
    assert below.look_up(key, access)
    below.promote(key, access)
    assert below.end_decision(now_ns + 50)
    assert (list(first.jobs), len(second.jobs)) == ([], 1)
    assert below.begin_decision(now_ns + 60)[0].keys == [key]


def test_every_tier_gets_every_chunk_and_one_is_missing_when_all_lack_it():
    """A tier may drop what it gets, and has its own time for what it keeps."""
    first, second = tier(), tier("obj", store=StoreSettings(write_ns_per_page=200.0))
    below, access = Tiers((first, second)), Access()
    assert below.write(keys(1, 4)) == 2
    assert len(below.begin_decision(80)) == 1
    assert below.has_jobs
    assert below.next_ns() == 800
    assert len(below.begin_decision(800)) == 1
    below.look_up(keys(2, 1)[0], access)
    below.end_decision(800)
    below.begin_decision(2000)
    assert below.look_up(keys(2, 1)[0], access) is False


PRESSURE = PressureSettings(
    high_water_s=0.01, low_water_s=0.002, alpha=1.0, warmup_completions=1, chunk_bytes=MIB
)


def pressure(*seconds, **settings):
    """After stores of a MiB that took so long each, one a second."""
    found = Pressure(PressureSettings(**{**_fields(PRESSURE), **settings}))
    for number, taken_s in enumerate((0.0, *seconds)):
        now_ns = number * SECOND
        found.stored(1, now_ns - round(taken_s * SECOND), now_ns)
    return found


def _fields(settings):
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_stores_are_dropped_the_more_the_further_the_average_is_above_the_mark():
    """Half as much again as the high mark: a quarter of all; three times as much: all."""
    some, most = pressure(0.015), pressure(0.03)
    assert [some.lets_store(SECOND) for _ in range(8)] == [True, True, True, False] * 2
    assert not any(most.lets_store(SECOND) for _ in range(8))
    assert not any(pressure(0.0101, drops_all=True).lets_store(SECOND) for _ in range(8))
    assert all(pressure(0.0099).lets_store(SECOND) for _ in range(8))


def test_pressure_falls_without_stores_and_every_second_one_is_dropped_for_a_while():
    """0.03 s falls to half in 2 s, and to less than the low mark in 8 s."""
    found = pressure(0.03)
    assert not found.lets_store(SECOND)
    assert found.lets_store(8 * SECOND)
    later_ns = 9 * SECOND
    assert [found.lets_store(later_ns) for _ in range(4)] == [True, False, True, False]
    assert all(found.lets_store(later_ns + SECOND) for _ in range(4))


def test_stores_that_fail_are_pressure():
    found = pressure()
    for _ in range(2):
        found.failed(SECOND)
        assert found.lets_store(SECOND)
    found.failed(SECOND)
    assert not found.lets_store(SECOND)


def test_prompt_comes_back_from_below_cpu_memory():
    """CPU memory has room for one prompt of 64 tokens: the other one has pushed it out.

    The lookup takes 1 ms, the read of four chunks 4 ms, the copy to the GPU 64 us.
    """
    store = StoreSettings(lookup_ns=1e6, read_ns_per_page=1e6)
    offload = OffloadSettings(
        num_chunks=4, copy_ns_per_token=1000.0, tiers=(TierSettings(kind="fs", store=store),)
    )
    requests = [
        scripted("a", (1, 64), output=2),
        scripted("other", (2, 64), output=2, arrival_ns=SECOND),
        scripted("b", (1, 64), output=2, arrival_ns=2 * SECOND),
    ]
    config = VllmConfig(
        max_model_len=128, offload=offload, enable_prefix_caching=False, async_scheduling=False
    )
    found = serve(listed(requests), config).request("b")
    assert (found["cached_tokens"], found["host_cached_tokens"]) == (63, 63)
    assert found["scheduled_ns"] == 2 * SECOND + 5_064_000


def of_ranks(requests):
    """Two ranks over one store, each with CPU memory of four chunks."""
    store = StoreSettings(lookup_ns=1e6, read_ns_per_page=1e5)
    offload = OffloadSettings(num_chunks=4, tiers=(TierSettings(kind="fs", store=store),))
    config = VllmConfig(max_model_len=256, max_num_batched_tokens=32, offload=offload)
    latencies = [(linear_latency(), linear_latency())]
    return serve(listed(requests), config, latencies, check=False)


def test_a_rank_finds_what_another_one_has_written():
    """The second request goes to the rank that has never seen the prompt."""
    requests = [
        scripted("a", (1, 64), output=2),
        scripted("b", (1, 64), output=2, arrival_ns=SECOND),
    ]
    served = of_ranks(requests)
    assert [served.request(rid)["replica"] for rid in "ab"] == [0, 1]
    assert served.request("b")["host_cached_tokens"] == 63


def test_chunks_that_push_each_other_out_for_ever_end_the_run():
    """Five chunks below room for four; between two decisions ranks run a step without work."""
    requests = [
        scripted("a", (1, 80), output=2),
        scripted("b", (1, 80), output=2, arrival_ns=SECOND),
    ]
    with pytest.raises(InputError, match="kv_offloading: CPU memory has no room for all chunks"):
        of_ranks(requests)
