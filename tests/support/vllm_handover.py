"""Runs cases of vLLM servers that only prefill, or only decode, without their other half.

Each row of the workload says how long its transfer takes, and whether it fails; see
`oracle/vllm/handover.py`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from sim.core.errors import InputError
from sim.core.packed import Line, numbered_lines
from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.des.replicas.one_server import Server
from sim.des.run import RunOptions
from sim.des.servers import Servers
from sim.des.traffic import SimulationLog, start_traffic
from sim.latency.model import ReplicaLatency, each_latency
from sim.latency.wrappers import StagedLatency
from sim.runlog.decisions import DecisionLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.workload.workload import ScriptedRequest


class OtherHalf:
    """Stands in for the server of the other role: all transfers take the times in the workload.

    Attributes:
        engine: the server's engine.
        loads: by rid, when blocks were allocated for its KV, and for how many KV is wanted.
        computed_ns: when a prompt's KV was complete, by rid.
    """

    def __init__(
        self, env: Clock, server: Server, rows: Sequence[Line], *, has_groups: bool
    ) -> None:
        self._env = env
        self._server = server
        self.engine = server.engine
        self._handovers = {str(row["rid"]): row["handover"] for row in rows}
        self.loads: dict[str, list[int]] = {}
        self.computed_ns: dict[str, int] = {}
        self._has_groups = has_groups
        self.engine.role.partner = self

    def allocated(self, rid: str, num_cached_tokens: int) -> None:
        kv = self.engine.kv
        num_tokens = self.engine.requests[rid].prompt_len - num_cached_tokens
        if num_tokens <= 0:
            return  # nothing has to be fetched
        self.loads[rid] = [self._env.now_ns]
        if not self._has_groups:
            self.loads[rid].append(-(-num_tokens // kv.page_size))
        self._expect_end(rid)

    def computed(self, rid: str, num_tokens: int, *, is_last: bool, from_ns: int = 0) -> None:
        self.computed_ns[rid] = self._env.now_ns
        self._expect_end(rid)

    def _expect_end(self, rid: str) -> None:
        after_ns = round(self._handovers[rid]["after_s"] * 1_000_000_000)
        event = TimedEvent(self._env, after_ns, ARRIVAL)
        event.callbacks.append(lambda _: self._end(rid))

    def _end(self, rid: str) -> None:
        self._server._end_wait_at_poll(self.engine)
        self.engine.role.now_ns = self._env.now_ns
        if self.engine.role.keeps_prompts:
            self.engine.role.sent(rid)
        elif self._handovers[rid].get("fails"):
            self.engine.role.transfer_failed(rid)
        else:
            self.engine.role.received(rid)
        self._server._wake()


def serve_handover(
    scenario: Line, rows: Sequence[Line], role: str, options: RunOptions, **changed: Any
) -> list[Line]:
    """Run a case's scenario on one server of this role; returns our decision log.

    `changed` are further settings (`VllmConfig`). The requests of a decode server have a `load`, as
    those of the oracle have.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        plain = [{key: row[key] for key in row if key != "handover"} for row in rows]
        trace = "".join(json.dumps(row) + "\n" for row in plain)
        (folder / "workload.jsonl").write_text(trace, encoding="utf-8")
        built = build(load_scenario_text(json.dumps(scenario, indent=1), base_dir=folder))
        config: Any = replace(cast("Any", built.scheduler), role=role, **changed)
        latencies: Sequence[ReplicaLatency] = built.latencies
        if config.micro_batches > 1:
            equal = [1] * config.micro_batches
            latencies = [StagedLatency(each, each, equal) for each in each_latency(latencies)]
        path = folder / "decisions.jsonl"
        decisions = DecisionLog(path, 1, 1)
        servers = Servers(config, latencies)
        reports = SimulationLog(decisions.steps, None)
        env = Clock()
        made = servers.make(env, reports, [0], options, clients_react=False)
        server = cast("Server", made.replicas[0])
        half = OtherHalf(env, server, rows, has_groups=bool(config.kv_cache_groups))

        def submit(request: ScriptedRequest) -> None:
            reports.account.arrived(request.spec.rid)
            server.submit(request)

        start_traffic(env, built.workload, submit, reports)
        try:
            num_steps = made.run(env)
        except InputError:
            decisions.discard()
            raise
        # An idle server of 0.19 never looks for the end of a transfer.
        if not server.engine.role.unseen:
            reports.account.close(made.engines())
        log = reports.builder.build(made.clocks(), {**servers.meta(), "simulated_steps": num_steps})
        decisions.close(log)
        lines = [line for _, line in numbered_lines(path)]
    return [line if line["kind"] == "step" else _with_other_half(line, half) for line in lines]


def _with_other_half(line: Line, half: OtherHalf) -> Line:
    """A router sees the end of a prefill when the prompt is computed."""
    rid = line["rid"]
    more: Line = {"finish_ns": half.computed_ns[rid]} if rid in half.computed_ns else {}
    if rid in half.engine.requests and rid in half.computed_ns:
        # The server has not looked whether its KV has left.
        record = half.engine.record(rid)
        more["ttft_ns"] = record.first_token_ns - line["arrival_ns"]
        more["cached_at_admit"], more["preemptions"] = record.cached_tokens, record.preemptions
        more["status"] = "finished"
    return line | more | ({"load": half.loads[rid]} if rid in half.loads else {})
