"""24 requests share 2,000 tokens, 8 share nothing: the hit rate, by several definitions."""

import pytest

SHAREABLE_TOKENS = 24 * 2_000
PROMPT_TOKENS = 59_269

PLAIN = {"disable_overlap_schedule": True, "chunked_prefill_size": None, "max_total_tokens": None}
SIXTEEN = {"max_running_requests": 16}
ONE_PROMPT = {"max_total_tokens": 2_600}


@pytest.fixture(scope="module")
def results(study):
    return study("lpm-24-8")


def cached(results, policy, **settings):
    return results.mean("total_cached_tokens", schedule_policy=policy, **settings)


def test_lpm_24_8_without_overlap_finds_what_sglang_does(results):
    """67.5 % of all prompt tokens in order of arrival, 77.6 % under LPM."""
    for policy, percent in (("fcfs", 67.5), ("sjf", 67.5), ("lpm", 77.6)):
        found = cached(results, policy, **PLAIN)
        assert 100 * found / PROMPT_TOKENS == pytest.approx(percent, abs=0.05)


def test_lpm_24_8_policies_in_order_of_arrival_find_what_fcfs_does(study):
    """Four sharers start before the first is done, and miss."""
    sweep = {"scheduler.schedule_policy": ["lof", "dfs-weight"]}
    runs = study("lpm-24-8", sweep, "scheduler.disable_overlap_schedule=true").runs
    assert [run.summary["total_cached_tokens"] for run in runs] == [20 * 2_000] * 2
    assert [run.summary["total_input_tokens"] for run in runs] == [PROMPT_TOKENS] * 2


def test_lpm_24_8_overlap_costs_a_batch_of_hits(results):
    """The second batch is decided before the first has left its prefix: its sharers miss it."""
    for policy in ("fcfs", "sjf", "lpm"):
        overlapped = cached(results, policy, disable_overlap_schedule=False)
        assert cached(results, policy, **PLAIN) - overlapped > 2 * 2_000


def test_lpm_24_8_above_95_percent_is_of_the_shareable_tokens(results):
    """LPM computes the prefix once, FCFS and SJF again and again."""
    for settings in (PLAIN, ONE_PROMPT):
        assert cached(results, "lpm", **settings) / SHAREABLE_TOKENS == pytest.approx(23 / 24)


def test_lpm_24_8_near_50_percent_needs_sixteen_at_once_or_a_cache_of_one_prompt(results):
    """Half of the shareable tokens in the one case, of all prompt tokens in the other."""
    for policy in ("fcfs", "sjf"):
        assert cached(results, policy, **SIXTEEN) == SHAREABLE_TOKENS / 2
        of_all = cached(results, policy, **ONE_PROMPT) / PROMPT_TOKENS
        assert of_all == pytest.approx(0.52, abs=0.025)


def test_lpm_24_8_in_sixteens_lpm_finds_two_thirds(results):
    """Eight sharers start with the unrelated ones: a batch does not share with itself."""
    assert cached(results, "lpm", **SIXTEEN) == 16 * 2_000
