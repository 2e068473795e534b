"""Which rank a request goes to (docs/explanation/ranks.md)."""

import pytest

from sim.core.batch import ScriptedExecutor
from sim.engine.page_pool import PageCounts
from sim.families import build_engine
from sim.vllm.config import VllmConfig
from sim.vllm.scheduler.ranks import VllmRanks


def ranks_of(version, num_ranks=3):
    config = VllmConfig(version=version, num_gpu_blocks=17)
    engines = [
        build_engine(config, pool=PageCounts(16, 16), executor=ScriptedExecutor())
        for _ in range(num_ranks)
    ]
    return VllmRanks(engines, 1, config)


def send(ranks, rid):
    """The rank that a request is sent to."""
    rank = ranks.choose(10, 0)
    ranks.sent(rank, rid, 0)
    return rank


@pytest.mark.parametrize(("version", "chosen"), [("0.33.0", 1), ("0.19.0", 0)])
def test_front_end_knows_which_of_its_requests_are_over(version, chosen):
    """Though the coordinator has just said that no rank has any: 0.19.0 believes it."""
    ranks = ranks_of(version)
    assert [send(ranks, rid) for rid in "abc"] == [0, 1, 2]
    ranks._known[0] = [[0, 0] for _ in range(3)]
    ranks.ended(1, ["b"])
    assert send(ranks, "d") == chosen


def test_waiting_requests_count_more_at_a_rank_whose_pool_is_full():
    """Two waiting ones at a full pool count eight, six running ones only six."""
    ranks = ranks_of("0.33.0", num_ranks=2)
    ranks._known[0] = [[2, 0], [0, 6]]
    ranks._usage = [1.0, 0.2]
    assert ranks.choose(10, 0) == 1
    ranks._usage = [0.5, 0.2]
    assert ranks.choose(10, 0) == 0
