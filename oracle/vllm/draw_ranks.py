"""Draws groups of ranks, and deals their requests."""

import random

from oracle.vllm.load import Config, Row
from sim.core.errors import InputError
from tests.support.vllm_conformance import VllmCase, serve_vllm_case


def draw_ranks(rng: random.Random, config: Config) -> Config:
    """Two to four such servers that step together.

    The front end limits what it has for all of them, and vLLM aligns prefill intervals. The pool
    has blocks for a whole step, or a request that is alone on its rank could preempt itself for
    ever.
    """
    num_groups = sum(each.get("count", 1) for each in config.get("kv_cache_groups", ()))
    of_a_step = config["max_num_batched_tokens"] // config["block_size"] + 2
    config = config | {"num_gpu_blocks": config["num_gpu_blocks"] + num_groups * of_a_step}
    left_out = "max_num_queued_reqs", "max_num_queued_tokens", "prefill_schedule_interval"
    kept = {name: value for name, value in config.items() if name not in left_out}
    return kept | {"ranks": rng.randint(2, 4)}


def dealt(config: Config, rows: list[Row]) -> list[Row]:
    """The rows with the ranks that servetwin's front end sends them to.

    It goes by what ranks report, so it deals them in the same way when the case is compared, as
    long as all decisions are equal. If some wait for ever, they go in turn.
    """
    try:
        ours = serve_vllm_case(VllmCase("dealt", config, rows, ()))
    except InputError:
        return [row | {"rank": place % config["ranks"]} for place, row in enumerate(rows)]
    ranks = {line["rid"]: line["rank"] for line in ours if line["kind"] == "req"}
    return [row | {"rank": ranks[row["rid"]]} for row in rows]
