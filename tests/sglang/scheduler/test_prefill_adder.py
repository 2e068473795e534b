"""The budgets of one pass, each at its edge (rules 2 to 5)."""

import pytest

from sim.sglang.scheduler.prefill.adder import Verdict
from sim.testing.contracts.policies import waiting_request

CONTINUE, NO_TOKEN, OTHER = Verdict.CONTINUE, Verdict.NO_TOKEN, Verdict.OTHER


@pytest.mark.parametrize(("page_size", "need"), [(1, 100 + 40 + 1), (64, 100 + 40 + 64)])
def test_admission_needs_strictly_less_than_the_budget(make_pass, page_size, need):
    """Prompt as it is, output, and a page, at page size 1 too."""
    room = -(-(need + 1) // page_size) * page_size
    big = make_pass(max_total_tokens=room, page_size=page_size)
    big.offer("a", 100 + room - need - 1, 40)
    assert len(big.admitted) == 1
    small = make_pass(max_total_tokens=room, page_size=page_size)
    assert small.offer("a", 100 + room - need, 40) is NO_TOKEN
    assert small.admitted == []


@pytest.mark.parametrize(("page_size", "prompt_charge"), [(1, 100), (64, 128)])
def test_admission_charges_pages_output_and_one_page_more(make_pass, page_size, prompt_charge):
    """What is left for others falls by more than what was needed."""
    one = make_pass(max_total_tokens=6400, page_size=page_size)
    assert one.offer("a", 100, 40) is CONTINUE
    budget = one.adder.budget
    assert budget.total_tokens == 6400 - prompt_charge - page_size - 40
    assert budget.current_tokens == 6400 - prompt_charge - page_size
    assert budget.input_tokens == 16_384 - prompt_charge
    assert budget.chunk_tokens == 8_192 - prompt_charge


def test_admission_charges_no_output_beyond_the_clip(make_pass):
    """However much a request may generate."""
    one = make_pass(max_total_tokens=200, clip_max_new_tokens=50)
    one.offer("a", 100, 10_000)
    assert one.adder.budget.total_tokens == 200 - 100 - 1 - 50


def test_admission_after_retraction_needs_what_is_left_but_charges_the_whole_limit(make_pass):
    """Generated tokens count in the check, and not in the charge."""
    one = make_pass(max_total_tokens=180)
    request = waiting_request("a", (1, 100), limit=60)
    request.num_generated = 30
    assert one.adder.add(request, has_chunked=False) is NO_TOKEN
    assert request.extend_len == 130
    assert one.adder.budget.total_tokens == 180 - 130 - 1 - 60


def test_admitted_request_can_stop_the_pass(make_pass):
    """The verdict is the budget's state after the charge: pages exceed what was needed."""
    one = make_pass(max_total_tokens=256, page_size=64)
    assert one.offer("a", 130, 60) is NO_TOKEN
    assert one.admitted == [("a", 130)]


def test_refused_request_leaves_no_trace(make_pass):
    """Budgets and locks are as before."""
    one = make_pass(max_total_tokens=200)
    one.offer("a", 100, 20)
    before = one.adder.budget.total_tokens, one.kv.cache.protected_tokens
    assert one.offer("b", 90, 20) is NO_TOKEN
    assert (one.adder.budget.total_tokens, one.kv.cache.protected_tokens) == before
    assert one.admitted == [("a", 100)]


def test_cached_prefix_is_not_charged_but_no_longer_evictable(make_pass):
    """Locking moves it out of what can be had."""
    one = make_pass(max_total_tokens=1000)
    donor = waiting_request("d", (7, 80))
    one.run(donor, 0)
    one.kv.checkpoint(donor.kv, 80, prompt_len=80, seq_len=80)
    one.kv.release(donor.kv, 80)
    assert one.adder.budget.total_tokens == 1000
    assert one.offer("a", 100, 10, seed=7) is CONTINUE
    assert one.admitted == [("a", 20)]
    assert one.adder.budget.total_tokens == 1000 - 80 - 20 - 1 - 10


def test_running_requests_reserve_a_share_of_their_clipped_rest(make_pass):
    """min(rest, clip) x ratio; ratio 1 for those that ignore end tokens."""
    rows = [
        (waiting_request("r", (1, 10), limit=30), 10),
        (waiting_request("s", (2, 10), limit=500), 20),
        (waiting_request("t", (3, 10), limit=30, ignore_eos=True), 10),
    ]
    one = make_pass(max_total_tokens=1000, clip_max_new_tokens=100, ratio=0.5, running=rows)
    free = 1000 - 20 - 30 - 20
    assert one.adder.budget.total_tokens == free - 20 * 0.5 - 100 * 0.5 - 20
    assert one.adder.budget.current_tokens == free
    assert [one.adder.reservation(request) for request, _ in rows] == [10, 50, 20]


@pytest.mark.parametrize("chunk", [512, -1])
def test_mixed_rows_are_charged_up_front_when_chunking(make_pass, chunk):
    """Decode rows that ride along take a token of each budget; without chunking none do."""
    rows = [(waiting_request(rid, (i, 10), limit=20), 0) for i, rid in enumerate("rst")]
    settings = {"enable_mixed_chunk": True, "chunked_prefill_size": chunk}
    budget = make_pass(max_total_tokens=1000, running=rows, **settings).adder.budget
    m = 3 if chunk > 0 else 0
    assert (budget.total_tokens, budget.current_tokens) == (970 - m, 970 - m)
    assert budget.input_tokens == 16_384 - m
    assert budget.chunk_tokens == (512 - m if chunk > 0 else None)


# ---- max_prefill_tokens and prefill_max_requests -----------------------------------------------


def test_prefill_limit_without_chunking_lets_the_first_through_alone(make_pass):
    """The first is taken whatever its length; then nothing more."""
    one = make_pass(max_total_tokens=9000, chunked_prefill_size=-1, max_prefill_tokens=100)
    assert one.offer("a", 300, 5) is OTHER
    assert one.admitted == [("a", 300)]


@pytest.mark.parametrize(("second_len", "taken"), [(49, True), (50, False)])
def test_prefill_limit_without_chunking_is_strict_for_the_second(make_pass, second_len, taken):
    """A later one must stay below what is left of the limit."""
    one = make_pass(max_total_tokens=9000, chunked_prefill_size=-1, max_prefill_tokens=100)
    one.offer("a", 50, 5)
    assert one.offer("b", second_len, 5) is (CONTINUE if taken else OTHER)
    assert len(one.admitted) == 1 + taken


def test_prefill_limit_with_chunking_only_stops_the_pass_when_spent(make_pass):
    """A later request may exceed it; then the pass is over."""
    one = make_pass(max_total_tokens=9000, max_prefill_tokens=100)
    assert one.offer("a", 50, 5) is CONTINUE
    assert one.offer("b", 300, 5) is OTHER
    assert one.admitted == [("a", 50), ("b", 300)]


def test_prefill_max_requests_refuses_the_next(make_pass):
    """The verdict comes before the prefix is even locked."""
    one = make_pass(prefill_max_requests=2)
    assert [one.offer(rid, 10, 5) for rid in "abc"] == [CONTINUE, CONTINUE, OTHER]
    assert len(one.admitted) == 2


# ---- chunks ------------------------------------------------------------------------------------


def test_chunk_prompt_whose_pages_overflow_is_split(make_pass):
    """200 tokens are 256 in pages, more than 192: they go as 192 and 8."""
    one = make_pass(page_size=64, chunked_prefill_size=192)
    assert one.offer("a", 200, 50) is OTHER
    assert one.admitted == [("a", 192)]
    request = one.adder.new_chunked
    assert one.adder.budget.total_offset == 192 + 64
    again = type(one.adder)(one.server, 0.0)
    request.prefix_len = 192
    assert again.continue_chunk(request) is None
    assert request.extend_len == 8
    assert again.budget.total_offset == 64 + 64 + 50


def test_chunk_counts_whole_pages_even_if_the_tokens_would_fit(make_pass):
    """195 tokens are fewer than 200, but four pages are more."""
    one = make_pass(page_size=64, chunked_prefill_size=200)
    assert one.offer("a", 195, 50) is CONTINUE
    assert one.admitted == [("a", 192)]


def test_chunk_that_fits_exactly_is_not_split(make_pass):
    """192 tokens of 192."""
    one = make_pass(page_size=64, chunked_prefill_size=192)
    assert one.offer("a", 192, 50) is OTHER
    assert one.adder.new_chunked is None
    assert one.admitted == [("a", 192)]


def test_chunk_second_request_gets_the_rest_in_whole_pages(make_pass):
    """130 tokens take 192 of 320; the next prompt is cut at the 128 left."""
    one = make_pass(page_size=64, chunked_prefill_size=320)
    assert one.offer("a", 130, 5) is CONTINUE
    assert one.offer("b", 300, 5) is OTHER
    assert one.admitted == [("a", 130), ("b", 128)]
    assert one.adder.new_chunked.rid == "b"


def test_chunk_less_than_a_page_left_stops_the_pass(make_pass):
    """A decode row took one of the 64 tokens: no whole page is left to start a chunk."""
    rows = [(waiting_request("r", (1, 10), limit=20), 0)]
    one = make_pass(page_size=64, chunked_prefill_size=64, enable_mixed_chunk=True, running=rows)
    assert one.offer("a", 100, 5) is OTHER
    assert one.admitted == []


@pytest.mark.parametrize("policy", ["fcfs", "shortest-prefill-first"])
def test_chunk_second_while_one_goes_on_only_if_the_policy_allows(make_pass, policy):
    """Shortest-prefill-first starts no further chunk beside one that goes on."""
    one = make_pass(schedule_policy=policy, chunked_prefill_size=64)
    assert one.offer("a", 100, 5, has_chunked=True) is OTHER
    assert one.admitted == ([] if policy != "fcfs" else [("a", 64)])


def test_continue_chunk_takes_what_memory_leaves(make_pass):
    """The next chunk is no longer than the total budget, unless that is spent."""
    rows = [(waiting_request("r", (1, 100), limit=60), 0)]
    for ratio, expected in ((0.5, 20), (0.9, 40)):
        one = make_pass(max_total_tokens=150, chunked_prefill_size=40, ratio=ratio, running=rows)
        request = waiting_request("a", (2, 90))
        assert one.adder.continue_chunk(request) is request
        assert one.admitted == [("a", expected)]


def test_continue_chunk_without_pages_waits(make_pass):
    """Nothing is admitted, and the request stays the chunked one."""
    rows = [(waiting_request("r", (1, 100), limit=60), 0)]
    one = make_pass(max_total_tokens=110, chunked_prefill_size=40, ratio=0.9, running=rows)
    request = waiting_request("a", (2, 90))
    assert one.adder.continue_chunk(request) is request
    assert one.admitted == []


def test_continue_chunk_within_a_limit_of_the_policy(make_pass):
    """The limit shortens the chunk; a limit of 0 leaves it out."""
    request = waiting_request("a", (2, 90))
    one = make_pass(chunked_prefill_size=40)
    assert one.adder.continue_chunk(request, 10) is request
    assert one.admitted == [("a", 10)]
    none = make_pass(chunked_prefill_size=40)
    assert none.adder.continue_chunk(request, 0) is request
    assert none.admitted == []
