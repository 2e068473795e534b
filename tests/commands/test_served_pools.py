"""What `simulate serve` answers from pools, and the run that it writes: simulated again."""

import csv
from pathlib import Path

import numpy as np
import pytest

from sim.api.answer import Asked, RefusedError
from sim.api.live_server import LiveServer
from sim.api.metrics import Metrics
from sim.commands.recorded_scenario import with_traffic, write_run
from sim.commands.running.simulate import deployment_of
from sim.families import family_named
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.disaggregated import DISAGGREGATED

SMALL_PREFILL = DISAGGREGATED.replace("max_total_tokens: 20000", "max_total_tokens: 4096")


class Served:
    """A live server of a scenario's pools, whose clock the test moves."""

    def __init__(self, text):
        self.now_ns = 0
        self.built = build(load_scenario_text(text, name="disaggregated.yaml", base_dir=Path()))
        metrics = Metrics(family_named("sglang").metric_names(), "tiny", list)
        self.server = LiveServer(
            deployment_of(self.built),
            iter(lambda: 4, None),
            metrics=metrics,
            clock_ns=lambda: self.now_ns,
        )

    def ask(self, num_tokens, max_tokens):
        self.now_ns += 3_000_001
        return self.server.ask(Asked(np.arange(num_tokens), max_tokens, ignore_eos=True))


def test_small_prefill_pool_does_not_shorten_answers():
    """A prefill server has no tokens of an answer: 6,000 do not fit there, but here they come."""
    served = Served(SMALL_PREFILL)
    answers = [served.ask(100, 6000) for _ in range(6)]
    served.now_ns += 10**12
    served.server.catch_up()
    assert [answer.num_tokens for answer in answers] == [6000] * 6


def test_served_run_with_refused_requests_is_simulated_with_the_same_times(simulate, folder):
    """A refused prompt took its turn at the routers; so it is sent again."""
    served = Served(SMALL_PREFILL.replace("least-loaded", "round-robin"))
    refused = 0
    for number in range(30):
        try:
            served.ask(40_000 if number % 4 == 1 else 500 + number, 20)
        except RefusedError:
            refused += 1
    served.now_ns += 10**12
    write_run(served.server, served.built, Path("mine"))
    assert refused >= 7
    assert simulate("run", "mine/scenario.yaml", "--requests", "again.csv").code == 0
    first, again = (
        list(csv.DictReader(Path(name).read_text("utf-8").splitlines()))
        for name in ("mine/requests.csv", "again.csv")
    )
    assert again == first
    assert [row["status"] for row in first].count("rejected") == refused


def test_load_counts_requests_that_wait_while_kv_is_sent():
    """Each prefill server has ten prompts of 2,000 tokens. A step of 2,048 takes 0.112 s.

    At 0.4 s the fourth step runs, and the fifth is decided: half of the prompts are left.
    """
    served = Served(DISAGGREGATED.replace("bandwidth_gb_s: 10", "bandwidth_gb_s: 1"))
    for number in range(30):
        ids = np.arange(number * 10_000, number * 10_000 + 2000)
        served.server.ask(Asked(ids, 9, ignore_eos=True))
    served.now_ns += 400_000_000
    served.server.catch_up()
    assert all(engine.role.sending for engine in served.server.live.engines[:3])
    assert [load.waiting for load in served.server.loads] == [5, 5, 5, 0, 0, 0, 0]


def test_client_that_went_away_as_the_server_ended_is_simulated_again(simulate, folder):
    """Its step is still computed when the server ends: it went away once, at the first time."""
    served = Served(DISAGGREGATED)
    answers = [served.ask(300 + number, 400) for number in range(8)]
    served.now_ns += 1_500_000_000
    served.server.catch_up()
    for answer in answers[:4]:
        served.server.cancel(answer)
    served.now_ns += 13_500_000
    write_run(served.server, served.built, Path("mine"))
    assert simulate("run", "mine/scenario.yaml", "--requests", "again.csv").code == 0
    first = Path("mine/requests.csv").read_text("utf-8")
    assert first.count("aborted") == 8
    assert Path("again.csv").read_text("utf-8") == first


def test_served_run_with_a_flushed_cache_is_simulated_with_the_same_times(simulate, folder):
    """The same prompt is cached before a flush, and not after it."""
    served = Served(DISAGGREGATED)
    for _ in range(3):
        for _ in range(2):
            served.ask(300, 3)
            served.now_ns += 10**12
            served.server.catch_up()
        assert served.server.flush_cache()
    write_run(served.server, served.built, Path("mine"))
    assert simulate("run", "mine/scenario.yaml", "--requests", "again.csv").code == 0
    first = Path("mine/requests.csv").read_text("utf-8")
    assert Path("again.csv").read_text("utf-8") == first
    cached = [row["cached_tokens"] for row in csv.DictReader(first.splitlines())]
    assert cached == [cached[0], cached[1]] * 3
    assert cached[0] == "0" != cached[1]


@pytest.mark.parametrize("key", ["latency", "model", "host"])
def test_paths_of_pools_start_from_the_folder_of_the_run(folder, key):
    """As those of the scenario do; other values stay."""
    Path("file.json").touch()
    value = {"kind": "profile", "path": "file.json"} if key == "latency" else "file.json"
    raw = {"pools": {"a": {"role": "prefill", key: value}, "b": {"model": "llama-3.1-8b"}}}
    pools = with_traffic(raw, Path(), Path("mine"))["pools"]
    moved = "../file.json"
    assert pools["a"][key] == ({**value, "path": moved} if key == "latency" else moved)
    assert pools["b"] == {"model": "llama-3.1-8b"}
    assert raw["pools"]["a"][key] == value
