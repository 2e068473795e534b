"""Runs a reference case of a prefill server or a decode server alone, and compares it.

The case says what happens at the other end (`tests.support.scripted_partner`).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from sim.core.errors import InputError, InvariantError
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


class _Side:
    """A case's server, and the script of the other one."""

    def __init__(self, case: ReferenceCase, folder: Path, *, fast_forward: bool) -> None:
        config, rows = case.config(), list(case.read_lines("workload"))
        scripts = {str(row["rid"]): row.pop("partner") for row in rows}
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
        self._servers = Servers(settings, latencies)
        self._env, self._path = Clock(), folder / "decisions.jsonl"
        self._decisions = DecisionLog(self._path, 1)
        self._reports = SimulationLog(self._decisions.steps)
        self._made = self._servers.make(self._env, self._reports, [0], options, clients_react=False)
        server = self._made.replicas[0]
        if not isinstance(server, Server):
            raise TypeError("a server alone has no ranks")
        self._server, self._partner = server, ScriptedPartner(self._env, server, scripts)
        start_traffic(self._env, built.workload, self._submit, self._reports)

    def _submit(self, request: ScriptedRequest) -> None:
        self._reports.account.arrived(request.spec.rid)
        self._server.submit(request)
        if request.spec.rid in self._server.engine.requests:
            self._partner.arrived(request.spec.rid)

    def run(self) -> None:
        self._made.run(self._env)

    def lines(self, *, may_keep: bool) -> list[Line]:
        """The decision log; `may_keep`: requests may be waiting for ever."""
        made, reports = self._made, self._reports
        if not may_keep:
            reports.account.close(made.engines())
        self._decisions.close(reports.builder.build(made.clocks(), self._servers.meta()))
        lines = [line for _, line in numbered_lines(self._path)]
        for line in lines:
            if line["kind"] == "req":
                line["sent"] = self._partner.sent.get(line["rid"], [])
                line["room"] = self._partner.room.get(line["rid"])
        return lines

    def steps(self) -> list[Line]:
        """Those until now."""
        return [json.loads(line) for line in self._decisions.steps.in_order()]


def serve_side(case: ReferenceCase, *, fast_forward: bool = True) -> list[Line]:
    """Run a case; returns our decision log, with what was told to the other server."""
    with TemporaryDirectory() as name:
        side = _Side(case, Path(name), fast_forward=fast_forward)
        side.run()
        # Where SGLang keeps requests for ever, servetwin may, too.
        is_stuck = any(line.get("status") == "stuck" for line in case.read_lines("decisions"))
        return side.lines(may_keep=is_stuck)


def side_until_error(case: ReferenceCase) -> list[Line]:
    """Our steps of a case that ends with an error."""
    with TemporaryDirectory() as name:
        side = _Side(case, Path(name), fast_forward=False)
        with suppress(InputError, InvariantError):
            side.run()
        return side.steps()


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
