"""A real vLLM's run, from its folder to the simulation's errors."""

import csv
import gzip
import json
import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from calibrate import cli as calibrate_cli
from sim import cli as simulate_cli
from sim.latency.host import read_host_times
from sim.scenario.load import load_scenario

REPOSITORY = Path(__file__).parents[3]
SCENARIO = REPOSITORY / "scenarios/validation/vllm-0.19-rtxpro6000-llama-3.1-8b.yaml"
RUN = REPOSITORY / "data/measured/vllm-0.19-rtxpro6000-llama-3.1-8b"
LATENCIES = ("ttft", "tpot", "latency")
HOST = ("--set", "latency.host=run/host.json")
IN_TURN = ("--set", "scheduler.async_scheduling=false")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A folder with the imported run and host.json, fitted to its first hundred requests."""
    folder = tmp_path_factory.mktemp("real")
    out = folder / "run"
    run = ["import", str(RUN), "--out", str(out), "--template", str(SCENARIO)]
    assert simulate_cli.main(run) == 0
    scenario, measured, host = out / "scenario.yaml", out / "measured.jsonl.gz", out / "host.json"
    fit = ["fit", str(measured), "--scenario", str(scenario), "--first", "100", "-o", str(host)]
    assert calibrate_cli.main(fit) == 0
    return out


@pytest.fixture(scope="module")
def validated(imported):
    """Validates the imported scenario, only once for equal options; returns the folder."""
    known = {}

    def validate(*options):
        if options not in known:
            known[options] = imported / f"validation-{len(known)}"
            files = [str(imported / name) for name in ("scenario.yaml", "measured.jsonl.gz")]
            series = ["--timeseries", str(RUN / "timeseries.csv")]
            out = ["--out", str(known[options])]
            with chdir(imported.parent):
                assert calibrate_cli.main(["validate", *files, *series, *out, *options]) == 0
        return known[options]

    return validate


@pytest.fixture(scope="module")
def judge(validated):
    """The document of a validation with these options."""
    return lambda *options: json.loads((validated(*options) / "validation.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def errors(judge):
    """Errors of the mean and of a single request, in %, by latency."""

    def both(*options):
        latencies = judge(*options)["latencies"]
        return {
            name: (latencies[name]["mean_ms"]["error_pct"], latencies[name]["request_error_pct"])
            for name in LATENCIES
        }

    return both


@pytest.fixture(scope="module")
def published(validated):
    """Errors of the published simulation of the run, over all requests from this row on."""
    with gzip.open(RUN / "published_sim_requests.csv.gz", "rt", newline="") as file:
        theirs = sorted(csv.DictReader(file), key=lambda row: int(row["request id"]))
    with (validated() / "requests.csv").open(newline="") as file:
        ours = sorted(csv.DictReader(file), key=lambda row: int(row["rid"].removeprefix("bench-")))

    def errors(skip):
        found = {}
        for name, column in zip(LATENCIES, ("TTFT", "TPOT", "latency"), strict=True):
            measured = np.array([float(row[f"measured_{name}_ms"]) for row in ours])[skip:]
            simulated = np.array([float(row[column]) / 1e6 for row in theirs])[skip:]
            of_mean = simulated.mean() / measured.mean() - 1
            found[name] = 100 * of_mean, 100 * (abs(simulated - measured) / measured).mean()
        return found

    return errors


def assert_within(errors, of_means, of_requests):
    for name, mean, request in zip(LATENCIES, of_means, of_requests, strict=True):
        assert abs(errors[name][0]) < mean, name
        assert errors[name][1] < request, name


def test_real_run_scenario_is_what_its_meta_json_says():
    """Names and numbers as the server was started with."""
    meta = json.loads((RUN / "meta.json").read_text("utf-8"))
    told = meta["engine_kwargs"]
    scenario = load_scenario(SCENARIO).scenario
    assert scenario.scheduler.family == "vllm"
    assert meta["vllm_version"] == "0.19.0"
    assert meta["model"].rpartition("/")[2].lower() == scenario.model
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        assert getattr(scenario.scheduler, key) == told[key]
    assert (told["max_model_len"], scenario.scheduler.max_model_len) == (None, 131_072)
    assert (told["tensor_parallel_size"], scenario.latency.tp) == (1, 1)


def test_real_run_by_kernel_times_alone_is_too_fast(errors, judge):
    """All latencies are too short, but not by much; all requests finish in both runs."""
    found = errors()
    assert all(mean < 0 for mean, _ in found.values())
    assert_within(found, (13, 6, 8), (13, 6, 8))
    assert judge()["requests"]["compared"] == 300
    assert judge()["arrivals"]["spread_ms"] < 0.5


def test_real_run_with_fitted_host_time_is_met(errors, judge, imported):
    """The fit to the first hundred requests is judged by the others, and by all."""
    assert 0.0012 < read_host_times(imported / "host.json").host_s < 0.0022
    assert_within(errors(*HOST, "--skip", "100"), (2, 1.6, 1.5), (5, 1.6, 1.5))
    assert_within(errors(*HOST), (2, 1.3, 1.3), (6, 1.5, 1.5))
    assert abs(judge(*HOST, "--skip", "100")["makespan_s"]["error_pct"]) < 2


def test_real_run_has_as_many_running_and_waiting(judge):
    """The mean difference over the run's seconds is at most two requests."""
    over_time = judge(*HOST)["over_time"]
    assert over_time["samples"] >= 66
    for size in ("running", "waiting"):
        assert over_time[size]["mean_difference"] < 2
    assert over_time["running"]["mean_measured"] > 90


def test_real_run_was_scheduled_asynchronously(errors):
    """Without overlap, first tokens of admitted requests would come a step too early."""
    (mean, request), (mean_in_turn, request_in_turn) = (
        errors(*HOST, *options, "--first", "100")["ttft"] for options in ((), IN_TURN)
    )
    assert abs(mean) < 4
    assert mean_in_turn < -10
    assert request_in_turn > 2 * request


def test_real_run_is_described_with_its_figures(errors, published):
    """docs/how-to/measured.md has the errors that come out."""
    judged = {"all 300": (), "the other 200": ("--skip", "100")}
    rows = documented_rows()
    assert len(rows) == 5
    simulator = None
    for name, which, *cells in rows:
        simulator = simulator if name == "the same" else name
        if simulator.startswith("LLMServingSim"):
            found = published(100 if judged[which] else 0)
        else:
            host = () if simulator == "kernel times alone" else HOST
            found = errors(*host, *judged[which])
        for latency, cell in zip(LATENCIES, cells, strict=True):
            told = [float(number) for number in cell.split(" / ")]
            assert told == pytest.approx(found[latency], abs=0.03), (name, which, latency)


def documented_rows():
    """Cells of the table of errors."""
    document = (REPOSITORY / "docs" / "how-to" / "measured.md").read_text(encoding="utf-8")
    table = document.split("| | judged |")[1].split("\n\n")[0]
    return [re.split(r" ?\| ?", line)[1:-1] for line in table.splitlines()[2:]]
