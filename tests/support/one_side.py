"""Runs a reference case of a prefill server or a decode server alone, and compares it.

The case says what happens at the other end (`tests.support.scripted_partner`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sim.core.packed import Line, numbered_lines
from sim.des.clock import Clock
from sim.des.replicas.one_server import Server
from sim.des.servers import RunOptions, Servers
from sim.des.traffic import SimulationLog, start_traffic
from sim.engine.logged_decision import Divergence
from sim.engine.server_config import DECODE
from sim.runlog.decisions import DecisionLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.workload.workload import ScriptedRequest
from tests.support.conformance import (
    ReferenceCase,
    first_divergence,
    in_stages,
    scenario_of,
    trace_row,
)
from tests.support.scripted_partner import ScriptedPartner

_TOLERANCE_NS = 1_000


# Keys of the scheduler's section that a case gives to a decode server.
_DECODE_KEYS = (
    "num_reserved_decode_tokens",
    "disaggregation_decode_extra_slots",
    "disaggregation_decode_polling_interval",
    "disaggregation_decode_retraction_backup",
)


def side_scenario(config: Line) -> Line:
    """The scenario of a case's server, apart from its role."""
    scenario = scenario_of(config)
    if config["disaggregation_mode"] == DECODE:
        settings = {key: config[key] for key in _DECODE_KEYS if config.get(key) is not None}
        settings["disaggregation_decode_enable_radix_cache"] = not config["disable_radix_cache"]
        scenario["scheduler"] |= settings
    return scenario


def serve_side(case: ReferenceCase, *, fast_forward: bool = True) -> list[Line]:
    """Run a case; returns our decision log, with what was told to the other server."""
    config, rows = case.config(), list(case.read_lines("workload"))
    scripts = {str(row["rid"]): row.pop("partner") for row in rows}
    with TemporaryDirectory() as name:
        folder = Path(name)
        trace = "".join(json.dumps(trace_row(row)) + "\n" for row in rows)
        (folder / "workload.jsonl").write_text(trace, encoding="utf-8")
        built = build(load_scenario_text(json.dumps(side_scenario(config)), base_dir=folder))
        # Scenarios with this key have server pools.
        keeps_retracted = config.get("disaggregation_decode_retraction_backup") == "host_pool"
        ratio = {"hicache_ratio": config.get("hicache_ratio") if keeps_retracted else None}
        section = built.loaded.scenario.scheduler.model_copy(update=ratio)
        staged, latencies = in_stages(built, config.get("stages", 1))
        settings = section.with_role(staged, config["disaggregation_mode"], None)
        options = RunOptions(fast_forward=fast_forward)
        servers = Servers(settings, latencies)
        env, decisions = Clock(), DecisionLog(folder / "decisions.jsonl", 1)
        reports = SimulationLog(decisions.steps)
        made = servers.make(env, reports, [0], options, clients_react=False)
        server = made.replicas[0]
        if not isinstance(server, Server):
            raise TypeError("a server alone has no ranks")
        partner = ScriptedPartner(env, server, scripts)

        def submit(request: ScriptedRequest) -> None:
            reports.account.arrived(request.spec.rid)
            server.submit(request)
            if request.spec.rid in server.engine.requests:
                partner.arrived(request.spec.rid)

        start_traffic(env, built.workload, submit, reports)
        made.run(env)
        if not any(line.get("status") == "stuck" for line in case.read_lines("decisions")):
            # Where SGLang keeps requests for ever, servetwin may, too.
            reports.account.close(made.engines())
        decisions.close(reports.builder.build(made.clocks(), servers.meta()))
        lines = [line for _, line in numbered_lines(folder / "decisions.jsonl")]
    for line in lines:
        if line["kind"] == "req":
            line["sent"] = partner.sent.get(line["rid"], [])
            line["room"] = partner.room.get(line["rid"])
    return lines


def first_difference_of_side(ours: Sequence[Line], theirs: Sequence[Line]) -> Divergence | None:
    """Compare our decision log with SGLang's: every step, then every request."""
    theirs = [_known(line) for line in theirs]
    divergence = first_divergence(ours, theirs)
    if divergence is not None:
        return divergence
    ours_by_rid = {line["rid"]: line for line in ours if line["kind"] == "req"}
    for line in theirs:
        if line["kind"] == "req" and line["status"] == "finished":
            mine = ours_by_rid[line["rid"]]
            told = [name for name in ("sent", "room") if not _same_events(mine, line, name)]
            if told:
                return Divergence(f"request {line['rid']}", tuple(told), mine, line)
    return None


def _known(line: Line) -> Line:
    """A request whose transfer fails counts as aborted here."""
    if line.get("status") == "failed":
        return {**line, "status": "aborted"}
    return line


def _same_events(ours: Line, theirs: Line, name: str) -> bool:
    mine = ours[name]
    others = theirs[name]
    if name == "room":
        mine, others = [mine] if mine else [], [others] if others else []
    if len(mine) != len(others):
        return False
    return all(
        abs(a[0] - round(b[0] * 1e9)) <= _TOLERANCE_NS and list(a[1:]) == list(b[1:])
        for a, b in zip(mine, others, strict=True)
    )
