"""Which requests a server accepts, and their effective limit, at the edges of rule 1."""

import pytest

from sim.engine.page_pool import PageCounts
from sim.families import FAMILIES
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def scheduler(config):
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    return FAMILIES["sglang"].build(config, pool)


def token_limit(config, prompt_len, max_new_tokens):
    return scheduler(config).token_limit(prompt_len, max_new_tokens)


def config(**settings):
    return SchedulerConfig(**({"max_total_tokens": 1000, "context_length": 200} | settings))


@pytest.mark.parametrize(
    ("settings", "longest"), [({}, 193), ({"max_total_tokens": 100}, 93)], ids=["context", "pool"]
)
def test_limit_prompt_that_is_too_long_is_rejected_when_its_turn_comes(settings, longest):
    """At least min(context, pool) - 1 - 5 tokens: it waits, and costs one token of prefill."""
    requests = [scripted("a", (1, longest), output=3), scripted("b", (2, longest + 1), output=3)]
    served = serve(listed(requests), config(**settings))
    statuses = [served.request(rid)["status"] for rid in "ab"]
    assert statuses == ["finished", "rejected"]
    assert served.request("b")["finish_ns"] == -1
    assert ["b", 0, 1] in [row for step in served.steps for row in step["prefill"]]


def test_limit_prompt_as_long_as_the_context_never_reaches_the_queue():
    """The front end refuses it."""
    served = serve(listed([scripted("a", (1, 200), output=3)]), config())
    assert served.request("a")["status"] == "rejected"
    assert served.steps == []


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


def test_limit_paged_prompt_that_leaves_no_page_gets_one_token():
    """Short of the pool in tokens, but not in pages: SGLang computes the prompt and one token."""
    settings = config(max_total_tokens=128, page_size=64)
    assert token_limit(settings, 60, 10) == 0
    served = serve(listed([scripted("a", (1, 60), output=9)]), settings)
    assert (served.request("a")["status"], served.request("a")["output_tokens"]) == ("finished", 1)
    assert not scheduler(settings).takes(64, 10)


def test_clipped_request_ends_at_its_token_limit():
    """The script would go on; the context does not."""
    served = serve(listed([scripted("a", (1, 150), output=500)]), config())
    assert served.request("a")["output_tokens"] == 48
    assert served.request("a")["status"] == "finished"
