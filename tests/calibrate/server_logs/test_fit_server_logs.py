"""Logs in SGLang's form, of a server whose step times are known: the fit finds them again."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrate.cli import main
from calibrate.server_logs.fit import fit_server_logs
from sim.commands.running.simulate import run_built, simulate_here
from sim.core.batch import ForwardMode
from sim.des.run import RunOptions
from sim.latency.features import StepFeatures
from sim.latency.profile.format import read_profile
from sim.latency.profile.model import ModeTime
from sim.metrics.power import ServerPower
from sim.metrics.summary import summarise
from sim.runlog.run_log_file import read_decisions
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

SCENARIO = """\
name: logged
seed: 5
latency: {{kind: linear, step_s: 0.012, per_prefill_token_s: 0.00006, per_decode_request_s: 0.0002,
  per_context_token_s: 0.00000001}}
workload:
  kind: clients
  clients: {clients}
  requests_per_client: {each}
  think_s: {{kind: constant, value: 0}}
  prompt_tokens: {{kind: uniform, min: 400, max: 1000}}
  output_tokens: {{kind: uniform, min: 200, max: 400}}
scheduler: {{page_size: 1, max_total_tokens: 400000, context_length: 4096, chunked_prefill_size: 8192,
  max_running_requests: 64}}
"""  # noqa: E501
ARGUMENTS = (
    "server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=1, decode_log_interval=1,"
    " page_size=1)"
)


def log_of(folder, clients, each=12, model="Qwen/Qwen3-32B"):
    """The log that a server would write of such a run; its clock has whole seconds."""
    decisions = folder / "decisions.jsonl"
    loaded = load_scenario_text(SCENARIO.format(clients=clients, each=each))
    simulate_here(build(loaded), RunOptions(fast_forward=False, decisions=decisions))
    steps, _ = read_decisions(decisions)
    begin = datetime(2026, 11, 27, 10, tzinfo=UTC)
    lines = [f"[{begin:%Y-%m-%d %H:%M:%S}] {ARGUMENTS.replace('Qwen/Qwen3-32B', model)}"]
    decoded_ns = 0
    for step in steps:
        at = begin + timedelta(seconds=step["t_end_ns"] / 1e9)
        stamp = f"[{at:%Y-%m-%d %H:%M:%S} TP0]"
        if step["mode"] == "decode":
            rate = step["n_decode"] / ((step["t_end_ns"] - decoded_ns) / 1e9)
            decoded_ns = step["t_end_ns"]
            lines.append(
                f"{stamp} Decode batch, #running-req: {step['n_decode']}, #token: {step['ctx']},"
                f" token usage: 0.10, cuda graph: True, gen throughput (token/s): {rate:.2f},"
                " #queue-req: 0"
            )
            continue
        tokens = sum(row[2] for row in step["prefill"])
        lines.append(
            f"{stamp} Prefill batch, #new-seq: {len(step['prefill'])}, #new-token: {tokens},"
            f" #cached-token: 0, token usage: 0.10, #running-req: {step['running']},"
            " #queue-req: 0, cuda graph: False, input throughput (token/s): 900.00"
        )
    path = folder / f"c{clients}.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_power(path.with_suffix(".csv"), steps, begin)
    return path


POWER = ServerPower(
    idle_w=500,
    limit_w=4000,
    joules={"decode_s": 900, "decode_doublings_s": 300, "prefill_s": 2500},
)


def write_power(path, steps, begin):
    """What nvidia-smi read of four GPUs meanwhile, once a second: the mean of the second before."""
    starts_s = np.array([step["t_start_ns"] / 1e9 for step in steps])
    ends_s = np.array([step["t_end_ns"] / 1e9 for step in steps])
    rows = np.array([max(step["n_decode"], 1) for step in steps])
    is_prefill = np.array([bool(step["prefill"]) for step in steps])
    added_w = np.where(is_prefill, 2500, 900 + 300 * np.log2(rows)) - 500
    lines = ["timestamp, index, power.draw [W], clocks.sm [MHz]"]
    for second in range(1, int(ends_s[-1]) + 12):
        share = np.minimum(ends_s, second) - np.maximum(starts_s, second - 1)
        watts = 500 + float((added_w * np.maximum(share, 0)).sum())
        stamp = f"{begin + timedelta(seconds=second):%Y/%m/%d %H:%M:%S}.000"
        lines += [f"{stamp}, {gpu}, {watts / 4:.2f} W, 1980 MHz" for gpu in range(4)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Of 2 clients and of 24."""
    folder = tmp_path_factory.mktemp("logs")
    return [log_of(folder, 2), log_of(folder, 24)]


def decode_ms(profile, rows):
    tokens = 800 * rows
    step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, tokens, tokens)
    return ModeTime(profile.modes["decode"]).at(step, rows) / 1e6


def test_step_times_between_two_loads_are_found_again(logs):
    found = fit_server_logs(logs, name="logged", label="", seed=0)
    for rows in (1, 2, 6, 12, 18, 24):
        known_ms = 12 + 0.2 * rows + 0.00001 * 800 * rows
        assert decode_ms(found.profile, rows) == pytest.approx(known_ms, rel=0.03), rows
    prefill = {term.term: term.ns for term in found.profile.modes["extend"].terms}
    # A batch of 700 tokens; how it is divided among batch and token the log can hardly tell.
    assert prefill["constant"] + 700 * prefill["tokens"] == pytest.approx(54e6, rel=0.15)


def test_command_writes_a_profile_that_a_scenario_can_use(logs, tmp_path, capsys):
    path = tmp_path / "profile.json"
    assert main(["fit", *map(str, logs), "-o", str(path), "--label", "two loads"]) == 0
    printed = capsys.readouterr().out
    assert "groups of decode steps" in printed
    assert f"profile: {path}" in printed
    profile = read_profile(path)
    assert (profile.model, profile.label) == ("Qwen/Qwen3-32B", "two loads")
    assert [source.file for source in profile.created_from] == ["c2.log", "c24.log"]
    assert json.loads(path.read_text())["modes"].keys() == {"decode", "extend"}


def test_power_beside_the_logs_is_found_again_and_a_run_has_it(logs, tmp_path, capsys):
    """Per GPU and second as nvidia-smi writes it; the stamps of the log have whole seconds."""
    path = tmp_path / "profile.json"
    power_csv = logs[1].with_suffix(".csv")
    assert main(["fit", str(logs[1]), "--power", str(power_csv), "-o", str(path)]) == 0
    assert "power of 4 GPUs, fitted to" in capsys.readouterr().out
    power = read_profile(path).power
    assert (power.gpus, power.clock_mhz.low, power.sources) == (4, 1980, ("c24.csv",))
    assert power.errors.mape_pct < 5
    text = SCENARIO.format(clients=12, each=8)
    known = run_built(build(load_scenario_text(text)))
    energy = {**known.meta, "power": [POWER._asdict()]}
    override = f"latency={{kind: profile, path: {path}}}"
    found = summarise(run_built(build(load_scenario_text(text, [override]))))
    expected = summarise(replace(known, meta=energy))
    assert found["mean_power_w"] == pytest.approx(expected["mean_power_w"], rel=0.05)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace("Decode batch", "Decoded batch"), "too few decode lines"),
        (lambda text: text.partition("\n")[2], "does not say its decode_log_interval"),
        (lambda text: text[:12000], "too few"),
        (lambda text: text.replace("Qwen/Qwen3-32B", "own/model"), "own/model"),
        (lambda text: text.replace("#new-seq: 1,", f"#new-seq: {10**12},"), "1e+12 is too much"),
        (lambda text: text.replace("_interval=1", f"_interval={10**9}"), "is over 10,000"),
    ],
)
def test_logs_that_cannot_be_fitted_get_one_line(logs, tmp_path, capsys, damage, reason):
    path = tmp_path / "damaged.log"
    path.write_text(damage(logs[1].read_text(encoding="utf-8")), encoding="utf-8")
    assert main(["fit", str(path), "-o", str(tmp_path / "profile.json")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"calibrate: {path}: ") or reason == "own/model"
    assert reason in error
    assert not (tmp_path / "profile.json").exists()


def test_steps_without_cuda_graphs_are_fitted_without_graphs(logs, tmp_path):
    paths = []
    for log in logs:
        paths.append(tmp_path / log.name)
        text = log.read_text(encoding="utf-8").replace("cuda graph: True", "cuda graph: False")
        paths[-1].write_text(text, encoding="utf-8")
    found = fit_server_logs(paths, name="eager", label="", seed=0)
    assert found.profile.graph_sizes == ()
    assert decode_ms(found.profile, 12) == pytest.approx(12 + 0.2 * 12 + 0.1, rel=0.03)


def test_logs_of_two_models_are_refused(logs, tmp_path, capsys):
    other = log_of(tmp_path, 2, model="Qwen/Qwen3-14B")
    assert main(["fit", str(logs[0]), str(other), "-o", str(tmp_path / "profile.json")]) == 2
    assert "one server at a time" in capsys.readouterr().err
