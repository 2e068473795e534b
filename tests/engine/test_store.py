"""A store: how long its operations take, what it keeps, and what fails."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from sim.engine.store import WHOLE_PAGE, Direction, Job, Pages, Store, StoreSettings, num_of

SETTINGS = StoreSettings(
    lookup_ns=50.0,
    read_latency_ns=100.0,
    write_latency_ns=30.0,
    read_ns_per_page=10.0,
    write_ns_per_page=20.0,
    pages_at_once=4,
)


def store_with(settings):
    """A store; what fails with a share of 1 always fails, and with a smaller one never."""
    return Store(settings, lambda: 0.999)


def pages(*keys, size=WHOLE_PAGE):
    return [Pages(keys, size)]


class Ends:
    """Notes at what time of the store each operation has ended."""

    def __init__(self, store):
        self._store = store
        self.times_ns = {}

    def of(self, name):
        return lambda: self.times_ns.setdefault(name, self._store.now_ns)


def test_store_operations_take_their_latency_and_their_bytes():
    """Nine pages, four at a time: three latencies of 100 ns, and 90 ns of transfer."""
    store = store_with(SETTINGS)
    ends = Ends(store)
    store.look_up(ends.of("lookup"))
    read = store.read(pages(*range(9)), ends.of("read"))
    write = store.write(pages(1, 2), ends.of("write"))
    assert (store.end_ns(read), store.end_ns(write)) == (390, 70)
    store.advance(10_000)
    assert ends.times_ns == {"lookup": 50, "write": 70, "read": 390}


def test_store_reads_at_the_same_time_share_the_bandwidth():
    """10 and 20 pages at once: half speed until the first is over; a write is not slowed down."""
    store = store_with(replace(SETTINGS, read_latency_ns=0.0, write_latency_ns=0.0))
    ends = Ends(store)
    store.read(pages(*range(10)), ends.of("short"))
    long = store.read(pages(*range(20)), ends.of("long"))
    store.write(pages(1), ends.of("write"))
    store.advance(0)
    assert store.end_ns(long) == 300
    store.advance(1000)
    assert ends.times_ns == {"write": 20, "short": 200, "long": 300}


def test_store_writes_that_end_at_the_same_time_end_in_order_of_their_begin():
    """Also where the latency, given in seconds, is not quite a whole number of nanoseconds."""
    latency_ns = 2.0484999999999998e-05 * 1e9
    assert int(latency_ns) == 20_484
    store = store_with(replace(SETTINGS, write_latency_ns=latency_ns, write_ns_per_page=0.016))
    ends = Ends(store)
    store.write(pages(*range(3)), ends.of("first"))
    store.write(pages(3), ends.of("second"))
    store.advance(100_000)
    assert list(ends.times_ns.items()) == [("first", 20_485), ("second", 20_485)]


def test_store_end_is_never_earlier_than_was_said():
    """A read that begins later delays one that is under way."""
    store = store_with(replace(SETTINGS, read_latency_ns=0.0))
    ends = Ends(store)
    first = store.read(pages(*range(10)), ends.of("first"))
    store.advance(40)
    assert store.end_ns(first) == 100
    store.read(pages(*range(3)), ends.of("second"))
    store.advance(1000)
    assert ends.times_ns == {"second": 100, "first": 130}


def test_store_writes_no_page_twice_and_drops_the_least_recently_used():
    store = store_with(replace(SETTINGS, capacity_pages=3))
    assert store.keep(pages(1, 2, 3), num_new=3)
    assert num_of(store.missing(pages(2, 3, 4))) == 1
    assert store.take(Pages([1])) == 1
    assert store.keep(pages(4), num_new=1)
    assert (store.num_found([1, 3, 4]), store.num_found([2]), store.num_pages) == (3, 0, 3)


def test_store_pages_of_other_sizes_take_their_share_of_time_and_room():
    """Four halves of a page in one round: two pages' time. The oldest of five makes room."""
    store = store_with(replace(SETTINGS, capacity_pages=2))
    half = WHOLE_PAGE // 2
    read = store.read(pages(1, 2, 3, 4, size=half), lambda: None)
    assert store.end_ns(read) == 100 + 20
    assert store.keep([*pages(5), *pages(1, 2, size=half)], num_new=3)
    assert store.keep(pages(3, size=half), num_new=1)
    assert [store.has(key) for key in (5, 1, 2, 3)] == [False, True, True, True]


def test_store_failed_write_keeps_nothing_and_failed_read_ends_a_fetch():
    store = store_with(replace(SETTINGS, failed_write_share=1.0))
    assert not store.keep(pages(1), num_new=1)
    assert store.num_pages == 0
    broken = store_with(replace(SETTINGS, failed_read_share=1.0))
    broken.keep(pages(1, 2), num_new=2)
    assert broken.take(Pages([1, 2])) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.booleans(), st.integers(1, 9)), min_size=1, max_size=12
    )
)
def test_store_bandwidth_is_conserved(operations):
    """All reads, and all writes, take their time together at least, and end after their own."""
    store = store_with(replace(SETTINGS, read_latency_ns=0.0, write_latency_ns=0.0))
    ends = Ends(store)
    begun = {}
    for i, (begin_ns, is_read, num_pages) in enumerate(sorted(operations)):
        store.advance(begin_ns)
        work_ns = num_pages * (10 if is_read else 20)
        if is_read:
            store.read(pages(*range(num_pages)), ends.of(i))
        else:
            store.write(pages(*range(100 * i, 100 * i + num_pages)), ends.of(i))
        begun[i] = is_read, begin_ns, work_ns
    store.advance(10**6)
    for direction in (True, False):
        mine = [(i, *each[1:]) for i, each in begun.items() if each[0] is direction]
        for i, begin_ns, work_ns in mine:
            assert ends.times_ns[i] >= begin_ns + work_ns - 1
        if mine:
            first_ns = min(begin_ns for _, begin_ns, _ in mine)
            total_ns = sum(work_ns for _, _, work_ns in mine)
            last_ns = max(ends.times_ns[i] for i, _, _ in mine)
            latest_ns = max(begin_ns for _, begin_ns, _ in mine)
            assert first_ns + total_ns - len(mine) <= last_ns <= latest_ns + total_ns + len(mine)


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=7))
@example([1115.5833333333333] * 6)
def test_store_a_server_that_wakes_when_a_job_may_end_finds_one_that_has(works):
    """Also where sums of shares are rounded: else it would wake at that time for ever."""
    direction = Direction()
    jobs = [Job(lambda: None, work_ns) for work_ns in works]
    for job in jobs:
        direction.begin(job, 0)
    first = direction.first()
    assert first is not None
    assert min(direction.end_ns(job) for job in jobs) == first[0]
