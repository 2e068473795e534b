"""Hit rate and KV use against the page size."""

import pytest

PAGES = [1, 64, 512]
SWEEP = {
    "scheduler.max_total_tokens": [65_536, 458_752],
    "scheduler.page_size": PAGES,
    "seeds": [1],
}


def test_page_size_large_pages_find_less_and_hold_more(study):
    """In the large pool nothing is evicted: what is lost is what pages round away."""
    results = study("page-size", SWEEP, "workload.num_requests=400")
    for pool in (65_536, 458_752):
        hits = results.means("cache_hit_rate_pct", "page_size", PAGES, max_total_tokens=pool)
        used = results.means("mean_kv_used_pct", "page_size", PAGES, max_total_tokens=pool)
        assert hits[0] > hits[1] > hits[0] - 5 > hits[2] + 5
        assert used[0] < used[1] < 1.1 * used[0]
        assert used[2] > 1.2 * used[0]


def test_page_size_waste_is_half_a_page_a_request(study):
    """Without shared prefixes a running request holds half a page for nothing."""
    results = study(
        "page-size",
        {"scheduler.page_size": [1, 128], "seeds": [1]},
        "workload.num_requests=400",
        "workload.prefixes=null",
        "scheduler.max_total_tokens=458752",
    )
    held, rows = (
        results.means(metric, "page_size", [1, 128])
        for metric in ("mean_kv_used_pct", "mean_decode_rows")
    )
    tokens = [458_752 * percent / 100 for percent in held]
    assert (tokens[1] - tokens[0]) / rows[1] == pytest.approx(64, rel=0.15)
