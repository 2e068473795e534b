"""Admission of requests of known length, when nothing is cached (rule 6)."""

import pytest

from sim.sglang.scheduler.prefill.adder import FutureMemory, Verdict
from sim.testing.contracts.policies import waiting_request

CONTINUE, NO_TOKEN, OTHER = Verdict.CONTINUE, Verdict.NO_TOKEN, Verdict.OTHER


def endless(rid, num_tokens, limit):
    return waiting_request(rid, (sum(rid.encode()), num_tokens), limit=limit, ignore_eos=True)


@pytest.mark.parametrize(("free", "verdict"), [(39, NO_TOKEN), (40, CONTINUE)])
def test_known_length_is_admitted_if_memory_lasts_until_each_end(make_pass, free, verdict):
    """Two rows with 8 tokens to go need 16 and a spare one each, beside a prompt of 20 + 1."""
    rows = [(endless("r", 10, 15), 5)]
    one = make_pass(max_total_tokens=15 + free, disable_radix_cache=True, running=rows)
    assert one.offer("a", 20, 8, ignore_eos=True) is verdict
    assert one.admitted == ([("a", 20)] if verdict is CONTINUE else [])


@pytest.mark.parametrize(("limit", "taken"), [(39, True), (40, False)])
def test_known_length_may_use_what_earlier_ends_give_back(make_pass, limit, taken):
    """29 free beside the prompt; a row ends after 10 steps and gives its 12 tokens back."""
    rows = [(endless("r", 2, 20), 10)]
    one = make_pass(max_total_tokens=12 + 50, disable_radix_cache=True, running=rows)
    # First end: 50 - 21 - 2 x 10 > 2; second: 50 - 21 + 12 - limit > 1.
    one.offer("a", 20, limit, ignore_eos=True)
    assert len(one.admitted) == taken


@pytest.mark.parametrize(("num_free", "taken"), [(31, True), (30, False)])
def test_known_length_needs_its_prompt_and_a_page_now(make_pass, num_free, taken):
    """They must fit beside the 10 tokens reserved, though memory would last with less."""
    rows = [(endless("r", 5, 10), 0)]
    one = make_pass(max_total_tokens=5 + num_free, disable_radix_cache=True, running=rows)
    one.offer("a", 20, 1, ignore_eos=True)
    assert len(one.admitted) == taken


def test_known_length_alone_is_admitted_without_a_spare_token(make_pass):
    """A request that fits alone must run, or it would wait for ever."""
    one = make_pass(max_total_tokens=100, disable_radix_cache=True)
    one.offer("a", 20, 79, ignore_eos=True)
    assert one.admitted == [("a", 20)]


@pytest.mark.parametrize(("ignore_eos", "no_cache"), [(True, False), (False, True)])
def test_known_length_rule_needs_both_conditions(make_pass, ignore_eos, no_cache):
    """With a cache, or with end tokens, the usual rule reserves the whole output."""
    one = make_pass(max_total_tokens=100, disable_radix_cache=no_cache)
    assert one.offer("a", 20, 79, ignore_eos=ignore_eos) is NO_TOKEN
    assert one.admitted == []


def test_known_length_chunk_is_cut_to_the_token(make_pass):
    """Exactly what is left of the chunk, not whole pages of it."""
    rows = [(waiting_request("r", (1, 10), limit=20), 0)]
    one = make_pass(
        page_size=64,
        chunked_prefill_size=192,
        enable_mixed_chunk=True,
        disable_radix_cache=True,
        running=rows,
    )
    assert one.offer("a", 300, 5, ignore_eos=True) is OTHER
    assert one.admitted == [("a", 191)]
    assert one.adder.new_chunked.rid == "a"


def test_future_memory_later_candidate_longer_than_all_goes_before_the_last():
    """SGLang's loop ends there: the later candidate is taken to end before the last row does."""
    first, later = endless("a", 100, 5), endless("b", 1, 20)
    # In order of ends: 13 - 2 x 5 > 2 and 113 - 20 > 1. As inserted: free - 2 x 20 > 2.
    assert FutureMemory([], 1.0, first, [later]).fits(13)
    ahead = FutureMemory([], 1.0, first, [])
    ahead.add(later)
    assert not ahead.fits(42)
    assert ahead.fits(43)


def test_future_memory_rows_that_may_end_sooner_count_a_share():
    """The ratio scales the limit of those that heed end tokens; nothing left, no row."""
    heeds = waiting_request("a", (1, 10), limit=20)
    assert FutureMemory([], 0.5, heeds, []).fits(12)
    assert not FutureMemory([], 0.5, heeds, []).fits(11)
    heeds.num_generated = 10
    assert FutureMemory([], 0.5, heeds, []).fits(0)
