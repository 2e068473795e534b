"""What real vLLM 0.26.0 servers decided (data/README.md), handed to our engine.

Our engine gets the events of the server's engine in their order: a request was added, a step was
decided, a step's result was taken in.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.core.packed import Line, numbered_lines
from sim.engine.logged_decision import decode_crc, describe_decision
from sim.engine.page_pool import PageCounts
from sim.engine.records import RequestRecord
from sim.families import build_engine, build_executor
from sim.runlog.decisions import step_line, step_times
from sim.runlog.run_log_file import measured_request_line, write_run_log
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario_text
from sim.workload.workload import every_request
from tests.support.measured_runs import MADE_UP

Event = Mapping[str, Any]

MEASURED = Path(__file__).parents[2] / "data/measured"
SAME_NAME = (
    "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "async_scheduling",
    "long_prefill_token_threshold", "scheduler_reserve_full_isl", "watermark",
    "prefill_schedule_interval",
)  # fmt: skip

# Its model is one that vLLM 0.26.0 still runs with its first model runner.
RUNNER_V1 = "vllm-0.26-h200-qwen3-30b-a3b"


def events_of(server: str) -> dict[str, list[Event]]:
    """The events of each load. Between two loads the server had nothing to do, and its prefix cache
    was reset: each begins with an engine of its own.
    """
    events: dict[str, list[Event]] = {}
    load = ""
    for number, event in numbered_lines(MEASURED / server / "steps.jsonl.gz"):
        if number > 1:  # the first line has a moment on two clocks
            load = event.get("load", load)
            events.setdefault(load, []).append(event)
    return events


def workload_of(run: tuple[str, str], events: Sequence[Event], folder: Path) -> Path:
    """The load's traffic. Prompts of vLLM's benchmark are random tokens: no two begin alike."""
    server, load = run
    if load != "bench":
        return MEASURED / server / load / "workload.jsonl.gz"
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


def built_twin(server: str, workload: Path, overrides: Mapping[str, Any]) -> BuiltScenario:
    """The scenario with the server's settings; `overrides` are other ones."""
    settings = json.loads((MEASURED / server / "settings.json").read_text(encoding="utf-8"))
    cache, scheduler = settings["cache_config"], settings["scheduler_config"]
    options = {
        "family": "vllm",
        "block_size": cache["block_size"],
        "enable_prefix_caching": cache["enable_prefix_caching"],
        "num_gpu_blocks_override": cache["num_gpu_blocks"],
        "max_model_len": settings["model_config"]["max_model_len"],
        "scheduling_policy": scheduler["policy"],
        **{name: scheduler[name] for name in SAME_NAME},
    }
    return build_twin(workload, {**options, **overrides})


def build_twin(workload: Path, scheduler: Mapping[str, Any]) -> BuiltScenario:
    """The scenario of a server, its scheduler's settings given, that gets this traffic."""
    scenario = {
        "name": "twin",
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "latency": {"kind": "roofline"},
        "workload": {"kind": "trace", "format": "servetwin", "path": str(workload)},
        "scheduler": scheduler,
    }
    return build(load_scenario_text(json.dumps(scenario), base_dir=MEASURED))


class Twin:
    """Our engine; what it decides is written as in the server's log."""

    def __init__(self, server: str, workload: Path, **overrides: Any) -> None:
        self.built = built_twin(server, workload, overrides)
        config: Any = self.built.scheduler
        self.block_size = config.page_size
        self.executor = build_executor(config)
        pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
        self.engine = build_engine(config, pool=pool, executor=self.executor)
        self.known = {request.spec.rid: request for request in every_request(self.built.workload)}
        # Requests have the numbers that the server's log gives them.
        self.number_of: dict[str, int] = {}
        self.running: set[str] = set()
        self.preempted: set[str] = set()
        self.has_runner_v1 = server == RUNNER_V1
        self.finished: list[int] = []
        self.batches: dict[int, Any] = {}
        self.token_ns: dict[str, list[int]] = {}

    def add(self, event: Event) -> None:
        rid = event["rid"]
        request = self.known[rid].sent_at(event["t"])
        assert (len(request.spec.prompt), request.spec.max_new_tokens) == (event["p"], event["m"])
        self.number_of[rid] = event["i"]
        self.token_ns[rid] = []
        self.executor.add(rid, request.script, ignore_eos=request.spec.ignore_eos)
        self.engine.submit(request.spec)

    def decide(self, event: Event) -> dict[str, Any]:
        self.decided = decided = self.engine.begin_step(event["t"])
        batch, finished, self.finished = decided.batch, self.finished, []
        if batch is not None:
            self.batches[event["k"]] = batch
        rows = batch.prefill if batch else ()
        tokens = {row.rid: row.extend_len for row in rows}
        tokens |= dict.fromkeys(batch.decode_rids if batch else (), 1)
        # vLLM's model runner V2 sends a request that was preempted anew, as it sends a new one. The
        # first runner names it apart, and its cached tokens count to the computed ones, `c`.
        new = {row.rid: row.prefix_len for row in rows if row.rid not in self.running}
        resumed = [rid for rid in new if rid in self.preempted] if self.has_runner_v1 else []
        new = {rid: num for rid, num in new.items() if rid not in resumed}
        preempted = [rid for _, victims in decided.preempted for rid in victims]
        self.preempted.update(preempted)
        self.running = self.running.union(new, resumed).difference(preempted)
        context = batch.num_context_tokens if batch else 0
        state, number = decided.state or self.engine.state(), self.number_of
        return {
            "n": {str(number[rid]): num for rid, num in tokens.items()},
            "new": {str(number[rid]): num for rid, num in new.items()},
            "c": context - sum(tokens.values()) - sum(new.values()),
            "pre": [number[rid] for rid in preempted],
            "res": [number[rid] for rid in resumed],
            "f": finished,
            "free": state.free_tokens // self.block_size,
            "w": state.queue,
        }

    def take_in(self, event: Event) -> Sequence[RequestRecord]:
        """Take a step's result in; returns the requests that ended."""
        batch = self.batches.pop(event["k"], None)
        if batch is None:
            return ()
        for rid in [*(row.rid for row in batch.prefill if row.samples), *batch.decode_rids]:
            if self.engine.takes_token(rid):
                self.token_ns[rid].append(event["t"])
        records = self.engine.end_step(batch, self.executor.execute(batch), event["t"])
        self.finished += [self.number_of[record.spec.rid] for record in records]
        return records


def write_as_run_log(run: tuple[str, str], path: Path) -> None:
    """Write a load as the log of a real run.

    The server did not say when its device began and ended. A step counts from its launch, or from
    the end of the step before, until its result was taken in.
    """
    server, load = run
    events = events_of(server)[load]
    twin = Twin(server, workload_of(run, (), path.parent))
    loaded, config = twin.built.loaded, twin.built.scheduler
    meta = {
        "source": "realrun",
        "name": loaded.scenario.name,
        "scenario": loaded.scenario.model_dump(mode="json"),
        "scenario_hash": loaded.content_hash,
        "scheduler": config.as_dict(),
        "sampling": "forced",
        "max_total_tokens": config.pool_tokens,
        "fingerprint": MADE_UP,
    }
    write_run_log(path, meta, _lines(twin, events))


def _lines(twin: Twin, events: Sequence[Event]) -> Iterator[Line]:
    base_ns = events[0]["t"]
    decided: dict[int, tuple[Event, dict[str, Any]]] = {}
    taken_ns: dict[int, int] = {}
    records: dict[str, RequestRecord] = {}
    for event in events:
        now = {**event, "t": event["t"] - base_ns}
        if event["e"] == "a":
            twin.add(now)
        elif event["e"] == "u":
            taken_ns[event["k"]] = now["t"]
            records |= {record.spec.rid: record for record in twin.take_in(now)}
        else:
            twin.decide(now)
            batch, state = twin.decided.batch, twin.decided.state
            if batch is not None and state is not None:
                words = describe_decision(batch, state, decode_crc(batch))
                decided[event["k"]] = (now, words)
    start_ns = end_ns = 0
    for number, (k, (event, words)) in enumerate(decided.items()):
        launched_ns = event["t"] + event["d"]
        # In flight: the host's time begins when the step before began; otherwise when it ended.
        host_ns = launched_ns - (start_ns if end_ns > event["t"] else end_ns)
        start_ns = max(launched_ns, end_ns)
        end_ns = max(taken_ns[k], start_ns + 1)
        times = step_times(event["t"], start_ns, end_ns, max(host_ns, 0))
        known = {"t_known_ns": end_ns, "forward_ns": end_ns - start_ns}
        measured = {**known, "looks_ns": [], "padded_rows": 0}
        yield step_line(number, times, words, measured=measured)
    for rid in twin.number_of:
        yield measured_request_line(records[rid], twin.token_ns[rid])
