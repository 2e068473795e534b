"""Draws a scenario: features that go together, other settings of the scheduler, all around them."""

import json
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from fuzz.combined.parts import Section, around, autoscale, maybe, traffic, transfer
from reference.feature_page import cell_of
from reference.features import FEATURES, Feature, scenario_with
from sim.families import FAMILIES
from sim.sglang.policies.policy import POLICIES
from tests.support.random_settings import other_values

# Values of sections and of texts, which have no bounds that values could be made of.
_SECTIONS: dict[str, Sequence[Any]] = {
    "schedule_policy": sorted(POLICIES),
    "radix_eviction_policy": ["lru", "lfu", "tlru", "slru", "priority", "hit-benefit"],
    "fairness": [
        {"kind": "fairness_t", "t_ms": 30},
        {"kind": "k_lpm", "k": 3},
        {"kind": "aging_tokens_per_pass", "tokens": 10},
        {"kind": "force_fifo_every", "passes": 2},
    ],
    "admission": [
        {"kind": "pack", "lookahead": 4, "force_fifo_every": 3, "cost": "uncached"},
        {"kind": "pack"},
    ],
    "waiting_timeout_s": [0.02, 0.3],
    "running_timeout_s": [0.03, 0.5],
    "retraction_policy": ["length", "priority"],
    "chunked_prefill_size": [-1, 16, 64],
    "max_running_requests": [1, 2, 5],
    "max_num_seqs": [1, 2, 5],
    "max_num_batched_tokens": [16, 64],
    "max_total_tokens": [512, 768],
    "num_gpu_blocks_override": [70, 100],
    "block_size": [4, 16, 32],
    "page_size": [1, 4, 16, 64],
    "kv_load_failure_policy": ["recompute", "fail"],
    "context_length": [400, 640],
    "num_reserved_decode_tokens": [0, 3, 40],
}
# Keys that another feature decides, or whose values the smallest scenarios cannot have.
_LEFT = {"family", "version", "speculative_eagle_topk", "mem_fraction_static", "kv_cache_dtype"}
_CHECKED_SHARE = 0.97


def combined_scenario(_old: bytes, rng: Random) -> bytes:
    """A scenario with many features at once, most often one that a server takes."""
    return json.dumps(drawn_scenario(rng), indent=1).encode()


def drawn_scenario(rng: Random) -> Section:
    """The scenario's data."""
    family = rng.choice(sorted(FEATURES))
    scenario = scenario_with(family, *_features(family, rng))
    scenario |= {"name": "combined", "workload": traffic(rng), **around(rng)}
    scheduler = scenario["scheduler"] = dict(scenario["scheduler"])
    for key in rng.sample(_keys(family), rng.choice((0, 1, 1, 2, 3))):
        scheduler[key] = rng.choice(_values(family, key))
    if family == "vllm":
        num_blocks = scheduler.get("num_gpu_blocks_override", 0) - 1
        scheduler["max_model_len"] = min(512, num_blocks * scheduler.get("block_size", 16))
    if "pools" in scenario:
        scenario["transfer"] = transfer(rng)
        scenario["pools"] = {name: _pool(pool, rng) for name, pool in scenario["pools"].items()}
    elif maybe(rng, 0.1):
        scenario["pools"] = {name: _pool({"role": "both"}, rng) for name in ("old", "new")}
    elif maybe(rng, 0.2):
        scenario |= {"autoscale": autoscale(rng), "replicas": rng.randint(1, 2)}
    else:
        scenario["replicas"] = rng.choice((1, 2, 3))
    if "autoscale" in json.dumps(scenario):
        # The router that reads caches needs servers that stay.
        while "kv-aware" in json.dumps(scenario["router"]):
            scenario["router"] = around(rng)["router"]
    return scenario


def _pool(pool: Section, rng: Random) -> Section:
    made = {**pool, "replicas": rng.randint(1, 2)}
    if maybe(rng, 0.2):
        made["autoscale"] = autoscale(rng)
    return made


def _features(family: str, rng: Random) -> list[Feature]:
    """Features, each two of which go together as far as the page of features says."""
    known = FEATURES[family]
    order = rng.sample(range(len(known)), len(known))
    checks = maybe(rng, _CHECKED_SHARE)
    taken: list[int] = []
    for number in order[: rng.randint(1, len(known))]:
        if all(_go_together(family, *sorted((number, other))) for other in taken) or not checks:
            taken.append(number)
        if len(taken) == 8:
            break
    return [known[number] for number in sorted(taken)]


@cache
def _go_together(family: str, one: int, other: int) -> bool:
    pair = (FEATURES[family][one], FEATURES[family][other])
    is_choice = pair[0].choice and pair[0].choice == pair[1].choice
    return not is_choice and not cell_of(family, pair).line


@cache
def _keys(family: str) -> list[str]:
    """Settings of a family's scheduler for which there are values."""
    of_features = {path.rpartition(".")[2] for each in FEATURES[family] for path in each.settings}
    fields = FAMILIES[family].section().model_fields
    left = (_LEFT | of_features) - _SECTIONS.keys()
    return [key for key in fields if key not in left and _values(family, key)]


@cache
def _values(family: str, key: str) -> Sequence[Any]:
    if key in _SECTIONS:
        return _SECTIONS[key]
    try:
        return other_values(FAMILIES[family].section(), key)
    except TypeError:
        return ()
