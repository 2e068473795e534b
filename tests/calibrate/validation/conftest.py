"""Scenarios, exact profiles, and logs of "real" runs whose step times are known."""

from pathlib import Path

import pytest

from calibrate.rebuild import rebuild
from sim.latency.profile.format import LatencyProfile
from sim.latency.profile.model import ProfileLatency
from sim.runlog.run_log_file import write_run_log
from sim.scenario.load import load_scenario_text
from tests.support.measured_runs import MADE_UP, measured_run

SCENARIO = """\
name: study
seed: 3
latency:
  kind: linear
  step_s: 0
  per_prefill_token_s: 0
  per_decode_request_s: 0
  per_context_token_s: 0
workload:
  kind: synthetic
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: uniform, min: 20, max: 300}
  output_tokens: {kind: uniform, min: 2, max: 30}
  prefixes: {groups: 3, tokens: {kind: constant, value: 160}, share_probability: 0.5}
scheduler:
  schedule_policy: lpm
  page_size: 16
  max_total_tokens: 2048
  context_length: 2048
  chunked_prefill_size: 128
  max_running_requests: 8
"""
_ERRORS = dict.fromkeys(("mape_pct", "p50_pct", "p95_pct", "max_pct", "total_pct"), 0.0)
_ERRORS |= {"points": 0, "outliers": 0}
_WIDE = {"low": 0.0, "high": 1e6}


def mode_model(ranges, factor, **ns):
    terms = [{"term": name, "ns": value * factor} for name, value in ns.items()]
    limits = dict.fromkeys(ranges, _WIDE)
    return {"range": limits, "terms": terms, "correction": None, "errors": _ERRORS}


def host_model(scheduling, factor):
    terms = [{"term": "constant", "ns": 500_000.0 * factor}]
    section = {"terms": terms, "errors": _ERRORS}
    return {
        "scheduling": scheduling,
        "modes": dict.fromkeys(("extend", "decode", "mixed"), section),
    }


@pytest.fixture(scope="session")
def profile():
    """Makes a profile whose times are `factor` times the true times."""

    def make(factor=1.0):
        extend = {"constant": 4e6, "tokens": 4e4, "attention": 20.0}
        decode = {"constant": 3e6, "decode_rows": 2e5, "decode_context": 1e3}
        mixed = {"constant": 4e6, "new_tokens": 4e4, "decode_context": 1e3}
        of_prefill, of_decode = ("tokens", "mean_cached"), ("decode_rows", "mean_context")
        data = {
            "schema_version": 1,
            "name": "truth",
            "label": "",
            "fingerprint": MADE_UP,
            "model": "tiny",
            "created_from": (),
            "graph_sizes": (),
            "modes": {
                "extend": mode_model((*of_prefill, "prefill_rows"), factor, **extend),
                "decode": mode_model(of_decode, factor, **decode),
                "mixed": mode_model((*of_prefill, *of_decode), factor, **mixed),
            },
            "host": (host_model("normal", factor), host_model("overlap", factor)),
            "decode_spread": None,
        }
        return LatencyProfile.model_validate(data, strict=False)

    return make


@pytest.fixture(scope="session")
def scenario():
    """Loads the scenario with these `KEY.PATH=VALUE` options."""

    def make(*options):
        return load_scenario_text(SCENARIO, options)

    return make


@pytest.fixture
def record(folder, scenario, profile):
    """Serves a scenario on the true device; returns the path of its log."""

    def to_disk(name="run.jsonl", *options, disturbance=None, arrivals=None, change=None, **meta):
        loaded = scenario(*options)
        overlaps = not loaded.scenario.scheduler.disable_overlap_schedule
        latency = ProfileLatency(profile(), overlaps=overlaps)
        run = measured_run(loaded, latency, disturbance, arrivals)
        if change is not None:
            change(run)
        write_run_log(Path(name), {**run.meta, **meta}, [*run.steps, *run.requests])
        return Path(name)

    return to_disk


@pytest.fixture
def rebuilt(record):
    """Serves a scenario on the true device; returns the run rebuilt from its log."""

    def make(name="run.jsonl", *options, **how):
        return rebuild(record(name, *options, **how))

    return make
