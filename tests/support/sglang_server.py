"""What real SGLang servers decided (data/README.md), handed to our engine.

Our engine gets the events of the server's scheduler in their order: requests were taken in, a pass
decided a step or none, a step's result was taken in, the server had nothing to do.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sim.core.batch import Batch
from sim.engine.page_pool import PageCounts
from sim.engine.records import RequestRecord, StepState
from sim.families import build_engine, build_executor
from sim.scenario.build import BuiltScenario
from sim.sglang.version_rules import version_with_rules_of
from sim.workload.workload import every_request
from tests.support.vllm_server import MEASURED, Event, build_twin
from tests.support.vllm_server import events_of as logged_events


def events_of(server: str) -> dict[str, list[dict[str, Any]]]:
    """The events of each load, in order. Before each, the server had nothing to do, and its cache
    was emptied. A decode step does not name rows that are those of the step before; here it does.
    """
    events = {load: [{**event} for event in found] for load, found in logged_events(server).items()}
    for found in events.values():
        rows: list[Any] = []
        for event in found:
            if "mode" in event:
                rows = event.setdefault("n", rows)
    return events


def built_twin(server: str, load: str, overrides: Mapping[str, Any]) -> BuiltScenario:
    """The scenario with the server's settings; `overrides` are other ones."""
    settings = json.loads((MEASURED / server / "settings.json").read_text(encoding="utf-8"))
    version = version_with_rules_of(settings["sglang_version"])
    scheduler = {"family": "sglang", "version": version, **settings["scheduler"], **overrides}
    return build_twin(MEASURED / server / load / "workload.jsonl.gz", scheduler)


class Twin:
    """Our engine; what it decides is written as in the server's log."""

    def __init__(self, server: str, load: str, *, num_refreshes: int, **overrides: Any) -> None:
        """`num_refreshes`: how often the server's passes had asked whether it is time to mark the
        prefixes of waiting requests as used. It counts on when its cache is emptied (rule 12).
        """
        built = built_twin(server, load, overrides)
        config: Any = built.scheduler
        self.executor = build_executor(config)
        pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
        self.engine = build_engine(config, pool=pool, executor=self.executor)
        scheduler: Any = self.engine.scheduler
        self.waiting = scheduler.waiting
        self.waiting.num_refreshes = num_refreshes
        self.known = {request.spec.rid: request for request in every_request(built.workload)}
        # Requests have the numbers that the server's log gives them.
        self.number_of: dict[str, int] = {}
        self.batches: list[Batch] = []

    def add(self, event: Event) -> None:
        rid = event["rid"]
        request = self.known[rid].sent_at(event["t"])
        assert (len(request.spec.prompt), request.spec.max_new_tokens) == (event["p"], event["m"])
        self.number_of[rid] = event["i"]
        self.executor.add(rid, request.script, ignore_eos=request.spec.ignore_eos)
        self.engine.submit(request.spec)

    def decide(self, event: Event) -> dict[str, Any]:
        decided = self.engine.begin_step(event["t"])
        batch, state = decided.batch, decided.state or self.engine.state()
        if batch is not None:
            self.batches.append(batch)
        return self._as_in_log(batch, state)

    def _as_in_log(self, batch: Batch | None, state: StepState) -> dict[str, Any]:
        number = self.number_of
        chunked = state.chunked
        words = {
            "mode": None if batch is None else batch.mode.name,
            "n": None,
            "chunk": None if chunked is None else number[chunked],
            "w": state.queue,
            "free": state.free_tokens,
            "evictable": state.evictable_tokens,
            "ratio": state.ratio,
            "ret": [number[rid] for rid in state.retracted],
        }
        if batch is not None:
            rows: list[Any] = [
                [number[row.rid], row.prefix_len, row.extend_len] for row in batch.prefill
            ]
            words["n"] = rows + [number[rid] for rid in batch.decode_rids]
        return words

    def take_in(self, event: Event) -> Sequence[RequestRecord]:
        """Take the oldest step's result in; returns the requests that ended."""
        batch = self.batches.pop(0)
        return self.engine.end_step(batch, self.executor.execute(batch), event["t"])

    def rest(self, event: Event) -> None:
        """The server looked for requests and found none; nothing was under way."""
        decided = self.engine.begin_step(event["t"])
        assert decided.batch is None
