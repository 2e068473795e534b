"""Parts of random scenarios beside the features of a scheduler: traffic, fleets, routers, times."""

from random import Random
from typing import Any

from fuzz.traces import TRACES

Section = dict[str, Any]

# What a fleet may follow; the timetable is drawn.
RULES: tuple[Section, ...] = (
    {"kind": "queue", "target": 1},
    {"kind": "concurrency", "target": 2},
    {"kind": "utilisation", "target": 0.1},
    {"kind": "rate", "target": 10},
    {"kind": "dynamo", "grow_above": 0.2, "shrink_below": 0.1},
    {"kind": "saturation", "kv_cache_threshold": 0.3, "queue_length_threshold": 2},
    {"kind": "slo"},
)
_ROUTERS: tuple[str | Section, ...] = (
    "round-robin",
    "least-loaded",
    "prefix-aware",
    "session-sticky",
    "random",
    "power-of-two",
    "kv-aware",
    {"kind": "prefix-aware", "balance_abs_threshold": 1, "block_tokens": 4, "max_tree_tokens": 64},
    {"kind": "session-sticky", "key": "tenant", "assignment": "random", "max_idle_s": 0.2},
    {"kind": "kv-aware", "event_delay_s": 0.01, "temperature": 0.5, "overlap_credit": 0.7},
)
_ARRIVALS: tuple[Section, ...] = (
    {"kind": "poisson", "rate_rps": 30},
    {"kind": "poisson", "rate_rps": 200},
    {"kind": "gamma", "rate_rps": 60, "cv": 4},
    {"kind": "constant", "rate_rps": 50},
    {"kind": "burst", "size": 7, "every_s": 0.1},
    {"kind": "burst", "size": 40, "every_s": 0},
    {"kind": "cycle", "rate_rps": 80, "pattern": [0, 1, 5], "period_s": 0.3},
)
_THINK: tuple[Section, ...] = (
    {"kind": "constant", "value": 0},
    {"kind": "constant", "value": 0.05},
    {"kind": "exponential", "mean": 0.02},
)
_HOSTS: tuple[str | Section, ...] = (
    "sglang-0.5.10",
    {"front_end_s": 0.003, "request_s": 0.001, "step_s": 0.0004, "row_s": 1e-5},
    {"step_gap_s": 0.0002, "prefill_token_gap_s": 3e-6, "prompt_token_s": 1e-5},
    {"cold_start_s": 0.2, "cold_start_tokens": 64, "layer_launch_s": 1e-4},
)
_MAX_REQUESTS = 60


def maybe(rng: Random, share: float) -> bool:
    return rng.random() < share


def lengths(rng: Random, most: int) -> Section:
    """Any distribution of lengths up to this one."""
    few = max(most // 8, 1)
    return rng.choice((
        {"kind": "constant", "value": rng.randint(1, most)},
        {"kind": "uniform", "min": 1, "max": most},
        {"kind": "uniform", "min": few, "max": most},
        {"kind": "lognormal", "mean": few, "cv": 2, "max": most},
        {"kind": "geometric", "mean": few, "max": most},
        {"kind": "choice", "values": [1, few, most], "weights": [1, 3, 1]},
    ))  # fmt: skip


def traffic(rng: Random) -> Section:
    """Any workload of up to a hundred requests."""
    if maybe(rng, 0.12):
        names = rng.sample(("a", "b", "c"), rng.randint(1, 3))
        parts = [{"tenant": name, "workload": _requests(rng, 30)} for name in names]
        return {"kind": "mix", "parts": parts}
    if maybe(rng, 0.12):
        return _bench(rng)
    made = _requests(rng, _MAX_REQUESTS)
    if maybe(rng, 0.2):
        made["tenant"] = "one"
    return made


def _requests(rng: Random, most: int) -> Section:
    kind = rng.choice((_synthetic, _synthetic, _sessions, _clients, _recorded))
    made = kind(rng, most)
    if maybe(rng, 0.25):
        after_s = {"kind": "exponential", "mean": rng.choice((0.005, 0.05, 0.5))}
        made["give_up"] = {"share": rng.choice((0.1, 0.6, 1)), "after_s": after_s}
    if maybe(rng, 0.3):
        made["max_new_tokens"] = rng.choice((1, 16, {"factor": 0.5}, {"factor": 3}))
    if maybe(rng, 0.3):
        sigma = rng.choice((0, 0.5, 5))
        guesses: tuple[Section, ...] = ({"kind": "exact"}, {"kind": "lognormal", "sigma": sigma})
        made["predicted_output"] = rng.choice(guesses)
    return made


def _sizes(rng: Random) -> Section:
    prompts = rng.choice((40, 200, 400))
    made: Section = {"prompt_tokens": lengths(rng, prompts), "output_tokens": lengths(rng, 40)}
    if maybe(rng, 0.5):
        share = rng.choice((0.3, 0.8, 1))
        shared = {"groups": rng.randint(1, 6), "tokens": lengths(rng, 150)}
        made["prefixes"] = {**shared, "share_probability": share, "zipf": rng.choice((0, 1, 3))}
    if maybe(rng, 0.2):
        made["system_prompt_tokens"] = rng.choice((1, 33, 128))
    return made


def _synthetic(rng: Random, most: int) -> Section:
    num = rng.randint(1, most)
    arrivals = rng.choice(_ARRIVALS)
    return {"kind": "synthetic", "num_requests": num, "arrivals": arrivals, **_sizes(rng)}


def _sessions(rng: Random, most: int) -> Section:
    made: Section = {
        "kind": "sessions",
        "sessions": rng.randint(1, most // 6),
        "turns": lengths(rng, 5),
        "user_tokens": lengths(rng, 60),
        "output_tokens": lengths(rng, 30),
        "think_s": rng.choice(_THINK),
    }
    if maybe(rng, 0.3):
        made["clients"] = rng.randint(1, made["sessions"])
    else:
        made |= {"arrivals": rng.choice(_ARRIVALS), "closed_loop": maybe(rng, 0.6)}
    if maybe(rng, 0.4):
        made["system_prompts"] = {"count": rng.randint(1, 3), "tokens": rng.choice((5, 64, 100))}
    return made


def _clients(rng: Random, most: int) -> Section:
    num = rng.randint(1, 8)
    each = rng.randint(1, max(most // num, 1))
    sizes = _sizes(rng)
    think_s = rng.choice(_THINK)
    return {
        "kind": "clients", "clients": num, "requests_per_client": each, "think_s": think_s, **sizes
    }  # fmt: skip


def _recorded(rng: Random, _most: int) -> Section:
    trace = rng.choice(list(TRACES.values()))
    made: Section = {"kind": "trace", "format": trace.format, "path": trace.file}
    if maybe(rng, 0.3):
        made["time_scale"] = rng.choice((0.01, 0.3))
    if maybe(rng, 0.2):
        made["limit"] = rng.randint(1, 9)
    return made


def _bench(rng: Random) -> Section:
    client = rng.choice(("sglang", "vllm", "inferencex", "aiperf"))
    made: Section = {
        "kind": "bench",
        "client": client,
        "num_prompts": rng.randint(1, 30),
        "input_len": rng.choice((4, 30, 200)),
        "output_len": rng.choice((2, 8, 40)),
    }
    if client != "aiperf":
        made["range_ratio"] = rng.choice((0, 0.5, 0.9))
    if client in {"sglang", "inferencex"}:
        made["vocab_size"] = 32_000
    if client in {"vllm", "inferencex"} and maybe(rng, 0.3):
        made["prefix_len"] = rng.choice((1, 64))
    if maybe(rng, 0.5):
        made["request_rate"] = rng.choice((10, 100))
    if maybe(rng, 0.5):
        made["max_concurrency"] = rng.choice((1, 3, 10))
    if maybe(rng, 0.3):
        made["warmup_requests"] = rng.choice((0, 1, 4))
    return made


def autoscale(rng: Random) -> Section:
    """A fleet that follows the load, with times of milliseconds."""
    times = [0, *sorted(rng.sample((0.011, 0.05, 0.17, 0.4), rng.randint(0, 4)))]
    steps = [{"at_s": each, "replicas": rng.randint(1, 3)} for each in times]
    timetable: Section = {"kind": "schedule", "steps": steps}
    if maybe(rng, 0.3):
        timetable["period_s"] = 0.6
    return {
        "rule": rng.choice((*RULES, timetable, timetable)),
        "max_replicas": rng.randint(2, 3),
        "interval_s": 0.02,
        "sample_s": rng.choice((0.005, 0.02)),
        "startup_s": rng.choice((0, 0.001, 0.07)),
        "shrink": {"window_s": rng.choice((0, 0.1))},
    }


def around(rng: Random) -> Section:
    """Keys of a scenario beside its traffic, its scheduler and its servers."""
    made: Section = {"seed": rng.choice((0, 1, 2**32 - 1, rng.randrange(1000)))}
    made["router"] = rng.choice(_ROUTERS)
    if maybe(rng, 0.4):
        made["host"] = rng.choice(_HOSTS)
    made["slo"] = {"ttft_ms": rng.choice((20, 500)), "tpot_ms": rng.choice((5, 50))}
    for edge in ("warmup", "cooldown"):
        if maybe(rng, 0.12):
            made[edge] = rng.choice(({"requests": 1}, {"requests": 3}, {"duration_s": 0.05}))
    return made


def transfer(rng: Random) -> Section:
    """The link between prefill and decode servers."""
    made: Section = {
        "bandwidth_gb_s": rng.choice(("unlimited", 0.01, 0.1, 50)),
        "latency_s": rng.choice((0, 0, 0.0001, 0.05)),
    }
    if maybe(rng, 0.3):
        made["failure_rate"] = rng.choice((0.1, 0.3))
    if maybe(rng, 0.3):
        made["max_retries"] = rng.choice((0, 1, 3))
    if maybe(rng, 0.2):
        made["timeout_s"] = rng.choice((0.001, 0.1))
    if maybe(rng, 0.2):
        made["fabric_gb_s"] = rng.choice((0.01, 10))
    if maybe(rng, 0.2):
        made["send_queues"] = rng.choice((0, 1, 4))
    if maybe(rng, 0.2):
        made["decode_server_chosen"] = "at_arrival"
    return made
