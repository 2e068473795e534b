"""Which requests a server accepts, and their effective limit, at the edges of rule 1."""

import pytest

from sim.engine.page_pool import PageCounts
from sim.families import FAMILIES
from sim.sglang.config import SchedulerConfig
from sim.testing.serve import serve
from sim.testing.workloads import ListWorkload, scripted


def token_limit(config, prompt_len, max_new_tokens):
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    scheduler = FAMILIES["sglang"].build(config, pool)
    return scheduler.token_limit(prompt_len, max_new_tokens)


def config(**settings):
    return SchedulerConfig(**({"max_total_tokens": 1000, "context_length": 200} | settings))


@pytest.mark.parametrize(("prompt_len", "taken"), [(193, True), (194, False)])
def test_limit_prompt_near_the_context_is_rejected(prompt_len, taken):
    """Prompt >= (context - 1) - 5 is too long."""
    assert (token_limit(config(), prompt_len, 100) > 0) is taken


@pytest.mark.parametrize(("prompt_len", "taken"), [(93, True), (94, False)])
def test_limit_prompt_near_the_pool_is_rejected(prompt_len, taken):
    """Prompt >= (pool - 1) - 5 is too long."""
    assert (token_limit(config(max_total_tokens=100), prompt_len, 100) > 0) is taken


def test_limit_is_clipped_to_the_context():
    """A prompt of 150 in a context of 200 leaves 200 - 1 - 150 - 1."""
    assert token_limit(config(), 150, 1000) == 48
    assert token_limit(config(), 150, 48) == 48
    assert token_limit(config(), 150, 47) == 47


@pytest.mark.parametrize(
    ("page_size", "pool_tokens", "expected"),
    [(1, 100, 100 - 50 - 2), (16, 160, 160 - 64 - 16 - 1), (16, 175, 160 - 64 - 16 - 1)],
)
def test_limit_is_clipped_to_the_pool_in_whole_pages(page_size, pool_tokens, expected):
    """Pool - ceiled prompt - a page - 1; the pool itself is floored to whole pages."""
    settings = config(max_total_tokens=pool_tokens, page_size=page_size)
    assert token_limit(settings, 50, 1000) == expected


def test_limit_paged_prompt_that_leaves_no_page_is_rejected():
    """Short of the pool in tokens, but not in pages."""
    settings = config(max_total_tokens=128, page_size=64)
    assert token_limit(settings, 60, 10) == -1
    assert token_limit(settings, 1, 10) == -1


def test_rejected_request_is_over_at_once_and_costs_nothing():
    """It is logged as rejected, and the others are served as if it had not come."""
    requests = [
        scripted("a", (1, 50), output=9),
        scripted("long", (2, 194), output=9),
        scripted("b", (3, 50), output=9),
    ]
    served = serve(ListWorkload(requests), config())
    without = serve(ListWorkload([requests[0], requests[2]]), config())
    assert served.request("long")["status"] == "rejected"
    assert served.request("long")["output_tokens"] == 0
    assert served.request("long")["finish_ns"] == -1
    assert served.steps == without.steps


def test_clipped_request_ends_at_its_token_limit():
    """The script would go on; the context does not."""
    served = serve(ListWorkload([scripted("a", (1, 150), output=500)]), config())
    assert served.request("a")["output_tokens"] == 48
    assert served.request("a")["status"] == "finished"
