"""`calibrate fit RESULTS -o FOLDER`: known step times are found from time stamps, or refused."""

import json
import math
from pathlib import Path

import pytest

from calibrate.coefficients.request_slots import slots_shown
from sim.cli import main as simulate
from sim.commands.import_results import read_source
from sim.scenario.load import load_scenario
from sim.scenario.strict_yaml import yaml_text
from sim.workload.results.model import ReadOptions

FAMILY = ("--set", "scheduler.family=sglang")
HELD_OUT_PCT = 5
BUSY = {
    "kind": "synthetic",
    "num_requests": 240,
    "arrivals": {"kind": "poisson", "rate_rps": 6},
    "prompt_tokens": {"kind": "uniform", "min": 50, "max": 400},
    "output_tokens": {"kind": "uniform", "min": 10, "max": 40},
}


@pytest.fixture
def settings(server):
    """Options that tell the server's settings."""
    return (*FAMILY, *(f"--set=scheduler.{key}={value}" for key, value in server.items()))


def found_in(folder):
    return json.loads(Path(folder, "fit.json").read_text(encoding="utf-8"))


def assert_near(fit):
    """The mean latencies of the held-out requests."""
    for part, errors in fit["errors"].items():
        if part.startswith("held out"):
            for name in ("ttft", "tpot"):
                assert abs(errors[name]["mean_error_pct"]) < HELD_OUT_PCT, (part, name)


def test_fit_finds_step_times_and_writes_a_scenario(calibrate, measure, settings, true_times):
    """The intervals have the true values, and the folder can be used at once."""
    results = measure("results.jsonl", host={"front_end_s": 0.012})
    code, out, _ = calibrate("fit", results, *settings, "-o", "out")
    assert code == 0
    fit = found_in("out")
    for key in ("latency.step_s", "latency.per_prefill_token_s", "host.front_end_s"):
        section, _, name = key.partition(".")
        true = {"host": {"front_end_s": 0.012}, "latency": true_times}[section][name]
        found = fit["coefficients"][key]
        assert found["low"] < found["value"] < found["high"]
        assert found["value"] == pytest.approx(true, rel=0.15)
    assert_near(fit)
    assert "requests that the fit has not seen: mean TTFT " in out
    scenario = load_scenario("out/scenario.yaml").scenario
    assert scenario.latency.step_s == fit["coefficients"]["latency.step_s"]["value"]
    assert scenario.scheduler.chunked_prefill_size == 2048
    assert simulate(["validate", "out/scenario.yaml"]) == 0


def test_fitted_scenario_says_how_far_off_its_means_are(calibrate, measure, settings, capsys):
    """By the requests held out; with other settings nothing is claimed."""
    results = measure("results.jsonl", BUSY, noise=0.1)
    _, out, _ = calibrate("fit", results, *settings, "-o", "out")
    assert "90 % interval near these loads: mean TTFT x 0." in out
    section = load_scenario("out/scenario.yaml").scenario.fitted
    assert (section.requests, section.runs, section.held_out) == (120, 1, 12)
    assert section.prompt_tokens[0] == section.prompt_tokens[1] > 100
    found = {}
    others = ["--set", "scheduler.max_running_requests=2"]
    for name, options in {"same": [], "other": others}.items():
        capsys.readouterr()
        assert simulate(["run", "out/scenario.yaml", "--format", "json", *options]) == 0
        found[name] = json.loads(capsys.readouterr().out)
    same, other = (each["confidence"] for each in found.values())
    assert same["basis"] == "fitted to 120 requests of measured runs: 1"
    assert other.keys() == {"basis", "rows", "no_interval"}
    measured = read_source(Path(results), None, ReadOptions()).requests
    ttft_ms = [(each.first_token_ns - each.arrival_ns) / 1e6 for each in measured]
    interval = same["mean_ttft_ms"]
    assert interval["low"] < sum(ttft_ms) / len(ttft_ms) < interval["high"]
    assert interval["high"] / found["same"]["mean_ttft_ms"] == pytest.approx(
        math.exp(section.ttft), rel=1e-3
    )


def test_fit_to_few_requests_claims_no_interval(calibrate, measure, settings):
    """Eight groups of ten requests held out: it takes nine."""
    results = measure("results.jsonl", BUSY | {"num_requests": 180})
    _, out, _ = calibrate("fit", results, *settings, "--first", "100", "-o", "out")
    assert "no interval: 8 groups of ten requests held out; an interval takes 9" in out
    assert load_scenario("out/scenario.yaml").scenario.fitted.ttft is None


def test_files_of_the_same_name_are_told_apart(calibrate, measure, settings, closed):
    """By their folders."""
    names = ["one/results.jsonl", "two/results.jsonl"]
    for place, name in enumerate(names, 1):
        Path(name).parent.mkdir()
        measure(name, closed(8 * place, 40))
    assert calibrate("fit", *names, *settings, "-o", "out")[0] == 0
    parts = {f"{part} of {name}" for part in ("seen", "held out") for name in names}
    assert found_in("out")["errors"].keys() == parts


def test_fit_refuses_what_one_concurrency_does_not_tell(calibrate, measure, settings, closed):
    """One line for each such coefficient, naming the measurement that tells it; twice the same."""
    results = measure("results.jsonl", closed(8, 100))
    command = ("fit", results, *settings, "-o")
    code, out, _ = calibrate(*command, "one")
    assert code == 0
    assert calibrate(*command, "two")[0] == 0
    for name in ("scenario.yaml", "fit.json", "workload.jsonl.gz", "measured.jsonl.gz"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    fit = found_in("one")
    assert "latency.per_decode_request_s" in fit["not_determined"]
    assert "latency.per_context_token_s" in fit["not_determined"]
    [line] = [each for each in out.splitlines() if "per_decode_request_s, held at 0" in each]
    assert "the load was always the same: 7.9 to 8.0 requests decoded at a time" in line
    assert "measure at several concurrencies, such as 1, 8 and 64, and give all" in line
    assert_near(fit)


def test_fit_to_several_files_tells_more(calibrate, measure, settings, closed):
    """One and 24 requests at a time: so the time of each decode row is determined."""
    names = [measure(f"{n}.jsonl", closed(n, 20 + 4 * n)) for n in (1, 24)]
    code, _, _ = calibrate("fit", *names, *settings, "-o", "out")
    assert code == 0
    fit = found_in("out")
    both = [fit["coefficients"][f"latency.{key}"] for key in ("step_s", "per_decode_request_s")]
    assert both[0]["value"] == pytest.approx(0.006, rel=0.1)
    # The context is always the same here, so it is taken to need as long as the rows themselves.
    assert both[1]["low"] < (1e-4 + 6e-8 * 544) / 2 < both[1]["high"]
    assert "as long" in fit["remarks"][0]
    assert Path("out/measured-2.jsonl.gz").exists()
    assert {"seen of 1.jsonl", "held out of 24.jsonl"} <= fit["errors"].keys()


ROOFLINE = {"kind": "roofline", "mfu": 0.55, "bandwidth_efficiency": 0.6}
MODEL = {"model": "llama-3.1-8b", "hardware": "h100-sxm"}


def test_fit_of_a_roofline_starts_from_a_template(calibrate, measure, server):
    """Its efficiencies are found; without overlap, host time has the key host_s."""
    serial = {**server, "disable_overlap_schedule": True}
    slow = {**ROOFLINE, "host_s": 0.004}
    results = measure("results.jsonl", latency=slow, scheduler=serial, **MODEL)
    like = {"name": "like", **MODEL, "latency": {"kind": "roofline"}, "scheduler": serial}
    traffic = {"kind": "trace", "format": "servetwin", "path": "none"}
    Path("like.yaml").write_text(yaml_text({**like, "workload": traffic}), encoding="utf-8")
    code, _, _ = calibrate("fit", results, "--template", "like.yaml", "-o", "out")
    assert code == 0
    fit = found_in("out")
    assert fit["coefficients"]["latency.mfu"]["value"] == pytest.approx(0.55, rel=0.15)
    assert {"latency.host_s"} & (fit["coefficients"].keys() | fit["not_determined"].keys())
    assert_near(fit)


@pytest.mark.long
def test_fit_tries_what_results_do_not_tell(calibrate, measure, server):
    """A server of few request slots and small chunks is recognised by its time stamps."""
    busy = {
        "kind": "synthetic",
        "num_requests": 80,
        "arrivals": {"kind": "poisson", "rate_rps": 20},
        "prompt_tokens": {"kind": "uniform", "min": 50, "max": 600},
        "output_tokens": {"kind": "uniform", "min": 60, "max": 200},
    }
    few = {**server, "max_running_requests": 12}
    results = measure("results.jsonl", busy, scheduler=few)
    requests = read_source(Path(results), None, ReadOptions()).requests
    assert slots_shown(requests) == 12
    assert slots_shown(requests[:10]) is None
    code, out, _ = calibrate("fit", results, *FAMILY, "--first", "50", "-o", "out")
    assert code == 0
    assert "scheduler.max_running_requests 12: that many requests ran while others waited" in out
    assert load_scenario("out/scenario.yaml").scenario.scheduler.max_running_requests == 12
    assert_near(found_in("out"))


def test_fit_of_a_real_server_is_within_five_percent(calibrate, folder):
    """As docs/how-to/calibrated.md says: on 200 requests that the fit has not seen."""
    run = Path(__file__).parents[3] / "data/measured/vllm-0.19-rtxpro6000-llama-3.1-8b"
    code, _, _ = calibrate("fit", run, "--first", 100, "--out", "out")
    assert code == 0
    fit = found_in("out")
    assert_near(fit)
    for name in ("ttft", "tpot", "latency"):
        assert abs(fit["errors"]["held out"][name]["mean_error_pct"]) < 1
    assert fit["not_determined"].keys() == {"latency.per_context_token_s"}


def test_fit_unusable_input_is_refused(refuse, measure, closed):
    """One line; nothing is written."""
    results = measure("results.jsonl", closed(4, 30))
    command = ("fit", results, "-o", "out")
    assert refuse(*command, "--first", 30).endswith("leaves none to judge the fit by")
    assert refuse(*command, "--first", 4).endswith("at least 10 are needed")
    assert refuse(*command, "--kind", "aiconfigurator").startswith("--kind aiconfigurator: needs")
    assert refuse(*command, "--kind", "layers").startswith("--kind layers: must be one of linear")
    assert refuse(*command, "--try", "scheduler.page_size").endswith("key.path=value,value,...")
    assert refuse(*command, "--name", "x") == "--name: only with run logs"
    assert refuse(*command, "--server", "vllm serve m").startswith("--server: needs --hardware")
    rows = [json.loads(line) for line in Path(results).read_text().splitlines()]
    for row in rows:
        row.pop("first_token_s")
    Path(results).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert refuse("fit", results, "--from", "measured", "-o", "out") == (
        "results.jsonl: has no times of first tokens: measure again with streaming on"
    )
    assert not Path("out").exists()
    assert not list(Path().glob(".fit-*"))
