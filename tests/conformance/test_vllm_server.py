"""What a real vLLM 0.26.0 server on an H100 decided, step by step (data/README.md).

Our engine gets the events of the server's engine in their order: a request was added, a step was
decided, a step's result was taken in. Every step must be decided as the server decided it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from sim.engine.page_pool import PageCounts
from sim.families import build_engine, build_executor
from sim.runlog.json_lines import numbered_lines
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.workload.workload import every_request

RUN = Path(__file__).parents[2] / "data/measured/vllm-0.26-h100-llama-3.1-8b"
SETTINGS = json.loads((RUN / "settings.json").read_text(encoding="utf-8"))
SAME_NAME = (
    "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "async_scheduling",
    "long_prefill_token_threshold", "scheduler_reserve_full_isl", "watermark",
    "prefill_schedule_interval",
)  # fmt: skip
# The loads, and in how many steps the server served each.
NUM_STEPS = {
    "warm": 291, "rate12": 2379, "clients64": 1610, "prefixes": 1710, "rate20": 1390, "burst": 282,
    "bench": 1792, "rate4": 3256,
}  # fmt: skip


@pytest.fixture(scope="module")
def events_of_loads():
    """The events of each load. Between two loads the server had nothing to do, and its prefix
    cache was reset: each begins with an engine of its own.
    """
    events: dict[str, list[Any]] = {load: [] for load in NUM_STEPS}
    load = ""
    for number, event in numbered_lines(RUN / "steps.jsonl.gz"):
        if number > 1:  # the first line has a moment on two clocks
            load = event.get("load", load)
            events[load].append(event)
    return events


def workload_of(load, events, folder):
    """The load's traffic. Prompts of vLLM's benchmark are random tokens: no two begin alike."""
    if load != "bench":
        return RUN / load / "workload.jsonl.gz"
    rows = [
        {
            "rid": event["rid"],
            "arrival": 0,
            "segments": [[2 * event["i"], event["p"]]],
            "output_len": event["m"],
            "ignore_eos": True,
        }
        for event in events
        if event["e"] == "a"
    ]
    path = folder / "workload.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def built_twin(workload, overrides):
    """The scenario with the server's settings; `overrides` are other ones."""
    cache, scheduler = SETTINGS["cache_config"], SETTINGS["scheduler_config"]
    scenario = {
        "name": "twin",
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "latency": {"kind": "roofline"},
        "workload": {"kind": "trace", "format": "servetwin", "path": str(workload)},
        "scheduler": {
            "family": "vllm",
            "block_size": cache["block_size"],
            "enable_prefix_caching": cache["enable_prefix_caching"],
            "num_gpu_blocks_override": cache["num_gpu_blocks"],
            "max_model_len": SETTINGS["model_config"]["max_model_len"],
            "scheduling_policy": scheduler["policy"],
            **{name: scheduler[name] for name in SAME_NAME},
            **overrides,
        },
    }
    return build(load_scenario_text(json.dumps(scenario), base_dir=RUN))


class Twin:
    """Our engine; what it decides is written as in the server's log."""

    def __init__(self, workload, **overrides):
        built = built_twin(workload, overrides)
        config = built.scheduler
        self.block_size = config.page_size
        self.executor = build_executor(config)
        pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
        self.engine = build_engine(config, pool=pool, executor=self.executor)
        self.known = {request.spec.rid: request for request in every_request(built.workload)}
        # Requests have the numbers that the server's log gives them.
        self.number_of: dict[str, int] = {}
        self.started: set[str] = set()
        self.finished: list[int] = []
        self.batches: dict[int, Any] = {}

    def add(self, event):
        rid = event["rid"]
        request = self.known[rid].sent_at(event["t"])
        assert (len(request.spec.prompt), request.spec.max_new_tokens) == (event["p"], event["m"])
        self.number_of[rid] = event["i"]
        self.executor.add(rid, request.script, ignore_eos=request.spec.ignore_eos)
        self.engine.submit(request.spec)

    def decide(self, event):
        decided = self.engine.begin_step(event["t"])
        batch, finished, self.finished = decided.batch, self.finished, []
        if batch is not None:
            self.batches[event["k"]] = batch
        rows = batch.prefill if batch else ()
        tokens = {row.rid: row.extend_len for row in rows}
        tokens |= dict.fromkeys(batch.decode_rids if batch else (), 1)
        new = {row.rid: row.prefix_len for row in rows if row.rid not in self.started}
        resumed = [row.rid for row in rows if row.num_prior_outputs and row.rid in self.started]
        self.started |= new.keys()
        context = batch.num_context_tokens if batch else 0
        state, number = decided.state or self.engine.state(), self.number_of
        return {
            "n": {str(number[rid]): num for rid, num in tokens.items()},
            "new": {str(number[rid]): num for rid, num in new.items()},
            "c": context - sum(tokens.values()) - sum(new.values()),
            "pre": [number[rid] for _, victims in decided.preempted for rid in victims],
            "res": [number[rid] for rid in resumed],
            "f": finished,
            "free": state.free_tokens // self.block_size,
            "w": state.queue,
        }

    def take_in(self, event):
        batch = self.batches.pop(event["k"], None)
        if batch is not None:
            records = self.engine.end_step(batch, self.executor.execute(batch), event["t"])
            self.finished += [self.number_of[record.spec.rid] for record in records]


def comparable(step):
    """The step with its rows in order, those with several tokens first, as batches have them here.

    vLLM names finished requests in no order.
    """
    rows = sorted(step["n"].items(), key=lambda row: row[1] == 1)
    return {**step, "n": rows, "f": sorted(step["f"])}


def first_difference(twin, events):
    """How many steps are equal; then ours and the server's, if another one is not."""
    num_equal = 0
    for event in events:
        if event["e"] == "a":
            twin.add(event)
        elif event["e"] == "u":
            twin.take_in(event)
        else:
            ours = comparable(twin.decide(event))
            theirs = comparable({name: event[name] for name in ours})
            if ours != theirs:
                return num_equal, ours, theirs
            num_equal += 1
    return num_equal, None, None


@pytest.mark.parametrize("version", ["0.33.0", "0.19.0"])
@pytest.mark.parametrize("load", NUM_STEPS)
def test_vllm_server_step_is_decided_as_by_the_server(load, version, events_of_loads, tmp_path):
    """Rows and their tokens, cached tokens, preemptions, free blocks, queue, who has finished."""
    events = events_of_loads[load]
    twin = Twin(workload_of(load, events, tmp_path), version=version)
    num_equal, ours, theirs = first_difference(twin, events)
    assert ours == theirs, f"step {num_equal + 1} of {load}"
    assert num_equal == NUM_STEPS[load]


@pytest.mark.parametrize(
    ("load", "setting", "num_equal"),
    [
        ("warm", {"num_gpu_blocks_override": 28_933}, 0),
        ("clients64", {"max_num_batched_tokens": 8_191}, 10),
        ("prefixes", {"enable_prefix_caching": False}, 40),
        ("burst", {"max_num_seqs": 64}, 67),
    ],
)
def test_vllm_server_other_settings_decide_otherwise(load, setting, num_equal, events_of_loads):
    """The comparison does notice: the pool, the budget, the prefix cache, the request slots."""
    twin = Twin(workload_of(load, (), None), **setting)
    found, ours, theirs = first_difference(twin, events_of_loads[load])
    assert (found, ours == theirs) == (num_equal, False)
