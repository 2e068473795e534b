"""Good logs of real runs, and the profiles that are fitted to them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from sim.commands.running.simulate import simulate_built
from sim.des.run import RunOptions
from sim.latency.profile.format import load_profile, shipped_profiles
from sim.latency.profile.model import ProfileLatency
from sim.runlog.run_log_file import write_run_log
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from tests.support.measured_runs import measured_run
from tests.support.metrics_dump import DumpWriter

_GRAPHS = (1, 2, 4, 8, 16)
# When the first reading of power was made: 2026-11-27 10:00 UTC.
POWER_S = 1_795_773_600
# Of a step: forty times as late, they are beside all readings of power.
_TIMES = ("t_start_ns", "t_end_ns")


def write_logs(folder: Path) -> None:
    """Write a real run's log, points, profiles of both versions, host times, and scrapes."""
    latency = ProfileLatency(load_profile("example/tiny-cpu", folder), overlaps=True)
    run = measured_run(load_scenario(folder / "served.yaml"), latency)
    write_run_log(folder / "run.jsonl", run.meta, [*run.steps, *run.requests])
    stretched = [{**step, **{key: 40 * step[key] for key in _TIMES}} for step in run.steps]
    write_run_log(folder / "slow.jsonl", run.meta, [*stretched, *run.requests])
    meta: dict[str, Any] = {"source": "profile", "fingerprint": {"device": "x"}}
    points = _points()
    write_run_log(folder / "points.jsonl", meta, points)
    meta["graph_sizes"] = _GRAPHS
    write_run_log(folder / "graphs.jsonl", meta, [*map(_with_graph, points)])
    text = shipped_profiles()["example/tiny-cpu"].read_text(encoding="utf-8")
    (folder / "profile.json").write_text(text, encoding="utf-8")
    (folder / "launched.json").write_text(json.dumps(_with_launch(text)), encoding="utf-8")
    _write_power(folder)
    writer = DumpWriter("vllm", 0.5)
    served = build(load_scenario(folder / "vllm.yaml"))
    writer.add(simulate_built(served, RunOptions(timed_gaps=True)), 6.0)
    (folder / "metrics.txt").write_bytes(writer.content())
    times = {
        "format": "servetwin-host-times",
        "version": 1,
        "host_s": 1e-3,
        "host_per_request_s": 1e-5,
        "fit": {},
    }
    (folder / "host.json").write_text(json.dumps(times), encoding="utf-8")


def _write_power(folder: Path) -> None:
    """What nvidia-smi, its dmon and DCGM read beside the run, ten times a second."""
    begin = datetime.fromtimestamp(POWER_S, UTC)
    smi = ["timestamp, index, power.draw [W], clocks.sm [MHz]"]
    dmon, metrics = ["#Date Time gpu pwr pclk"], []
    for number in range(400):
        at, watts = begin + timedelta(seconds=number / 10), 300 + 5 * (number % 37)
        smi.append(f"{at:%Y/%m/%d %H:%M:%S.%f}, {number % 2}, {watts} W, 1980 MHz")
        dmon.append(f"{at:%Y%m%d %H:%M:%S} {number % 2} {watts} 1980")
        metrics.append(f"# scraped {round(1e6 * at.timestamp())}")
        metrics.append(f'DCGM_FI_DEV_POWER_USAGE{{gpu="{number % 2}",UUID="x"}} {watts}')
    for name, lines in (("power.csv", smi), ("power.txt", dmon), ("power.prom", metrics)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _points() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    points = []
    for rows in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24):
        for tokens in (0, 8 + rows, 80 + rows, 200 + 9 * rows):
            decode = 0 if tokens > 200 else rows
            mode = "decode" if not tokens else "mixed" if decode else "extend"
            context = tokens + (40 + 9 * rows) * decode
            forward_ns = 4e6 + 3e4 * tokens + 2e5 * rows + 100 * context + rng.integers(10_000)
            points.append(
                {
                    "kind": "point",
                    "mode": mode,
                    "prefill": [["", 0, tokens]] if tokens else [],
                    "n_decode": decode,
                    "ctx": context,
                    "forward_ns": int(forward_ns),
                    "repeats": 3,
                    "plan_ns": 1e5,
                    "launch_ns": 2e5,
                    "read_back_ns": 1e4,
                }
            )
    return points


def _with_graph(point: dict[str, Any]) -> dict[str, Any]:
    """The point with the rows of the graph that ran it, and the mean context of its rows."""
    rows = point["n_decode"]
    captured = min((size for size in _GRAPHS if size >= rows), default=0)
    return point | {"padded_rows": 0 if point["prefill"] else captured, "max_decode_ctx": 99}


def _with_launch(text: str) -> dict[str, Any]:
    """A profile of the newest version: with graphs, launch times, and errors of what was left."""
    profile: dict[str, Any] = json.loads(text)
    errors = profile["modes"]["extend"]["errors"]
    terms = [{"term": "constant", "knee": 0, "ns": 2e6}, {"term": "tokens", "knee": 0, "ns": 10}]
    return profile | {
        "schema_version": 2,
        "power": {
            "gpus": 2,
            "idle_w": 100.0,
            "limit_w": 700.0,
            "joules": {"busy_s": 100.0, "steps": 1.0, "context_tokens": 1e-4},
            "idle_measured": True,
            "sources": ["power.csv"],
            "windows": 9,
            "window_s": 2.0,
            "decode_rows": {"low": 1, "high": 8},
            "clock_mhz": None,
            "errors": errors,
        },
        "graph_sizes": _GRAPHS,
        "launch": {
            "extend": {"terms": terms, "errors": errors},
            "decode": {"terms": terms[:1], "errors": errors},
        },
        "left_out": [{"mode": "decode", "what": "rows > 16", "errors": errors}],
    }
