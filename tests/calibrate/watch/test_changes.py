"""What is told as a change and no drift: other traffic, and another server."""

from calibrate.watch.changes import TrafficChanges, server_changes
from sim.server_metrics.window import WindowBuilder
from tests.support.scrapes import scrape


def told(windows):
    """What is said of windows of 10 s, each with its requests, prompt tokens and share of hits."""
    changes, builder = TrafficChanges(), WindowBuilder(10)
    at_s = requests = prompts = hits = 0.0
    said = []
    builder.take(scrape())
    for number, length, share in windows:
        at_s, requests = at_s + 10, requests + number
        prompts, hits = prompts + number * length, hits + number * length * share
        window = builder.take(
            scrape(at_s, requests=requests, prompt_tokens=prompts, cached_tokens=hits)
        )
        if words := changes.take(window):
            said.append(words)
    return said


def test_chance_is_no_change():
    assert not told([(20 + 4 * (place % 3), 500, 0.2) for place in range(40)])
    # Bursts: no request in three windows, eighty in the fourth.
    assert not told([(80 if place % 4 == 0 else 0, 500, 0.2) for place in range(40)])


def test_more_requests_longer_prompts_and_fewer_hits_are_told_once():
    usual = [(20, 500, 0.5)] * 8
    (rate,) = told([*usual, *[(31, 500, 0.5)] * 8])
    assert rate == "traffic changed: 2.00 → 3.10 requests/s"
    (lengths,) = told([*usual, *[(20, 800, 0.5)] * 6])
    assert lengths.startswith("traffic changed: prompts of 500.0 → ")
    (hits,) = told([*usual, *[(20, 500, 0.1)] * 4])
    assert hits == "traffic changed: cache hits 50.00 → 30.00 %"


def test_a_server_is_another_one_when_its_settings_differ():
    pool = {"block_size": "16", "num_gpu_blocks": "2400"}
    before = scrape(info=pool, requests=9.0)
    assert list(server_changes(before, scrape(1, info=pool, requests=9.0))) == []
    after = scrape(1, info={**pool, "num_gpu_blocks": "1200", "swap": "4"}, requests=2.0)
    assert list(server_changes(before, after)) == [
        "the server was restarted: its counters began anew",
        "the server's settings changed: num_gpu_blocks 2400 → 1200, swap none → 4",
    ]


def test_a_pool_that_is_a_gauge_is_compared_too():
    before, after = scrape(pool_tokens=65_536.0), scrape(1, pool_tokens=32_768.0)
    (told_,) = server_changes(before, after)
    assert told_ == "the server's settings changed: KV pool 65,536 tokens → 32,768 tokens"
