"""Logs of vLLM servers with a line for each step: a real one, and one of known step times."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from calibrate.cli import main
from calibrate.server_logs.fit import fit_server_logs
from calibrate.server_logs.iterations import read_iterations
from sim.core.batch import ForwardMode
from sim.families import open_server_log
from sim.latency.features import StepFeatures
from sim.latency.profile.format import read_profile
from sim.latency.profile.model import ProfileLatency

REAL = Path(__file__).parents[3] / "data/measured/vllm-0.26-h100-llama-3.1-8b-faults"
BEGIN = (
    "INFO 11-27 09:33:18 [api_utils.py:273] non-default args: {'model': 'Qwen/Qwen3-32B'}\n"
    "INFO 11-27 09:34:16 [kv_cache_utils.py:2177] GPU KV cache size: 400,000 tokens\n"
)
# A decode step and each of its rows; a step with prompts and each of its new tokens.
DECODE_S, ROW_S, PROMPTS_S, TOKEN_S = 0.006, 0.0001, 0.004, 0.00002


def line(number, at_s, prompts, tokens, rows, usage=1.0):
    return (
        f"{1795772086 + at_s:.6f}\t(APIServer pid=521) INFO 11-27 09:34:{int(at_s) % 60:02d}"
        f" [loggers.py:182] Engine 000: Iteration({number}): {prompts} context requests,"
        f" {tokens} context tokens, {rows} generation requests,"
        f" {rows} generation tokens, iteration elapsed time: 0.04 ms,"
        f" GPU KV cache usage: {usage:.1f}%\n"
    )


def known_log(folder, *, stamped=True, num_steps=3000):
    """Of a server whose launches of prompts delay the line before, and which is idle at times."""
    random = np.random.default_rng(0)
    lines, at_s, rows = [BEGIN], 0.0, 0
    has_prompts = [number % 50 == 0 or random.random() < 0.04 for number in range(num_steps)]
    for number in range(num_steps):
        if number % 500 == 0:
            at_s, rows = at_s + 5, 0
        elif rows > 16:
            rows = 2
        tokens = int(random.integers(100, 900)) if has_prompts[number] else 0
        at_s += PROMPTS_S + TOKEN_S * (tokens + rows) if tokens else DECODE_S + ROW_S * rows
        delay_s = 0.9 * PROMPTS_S if number + 1 < num_steps and has_prompts[number + 1] else 0
        lines.append(line(number, at_s + delay_s, int(tokens > 0), tokens, rows))
        rows += tokens > 0
    path = folder / "server.log"
    text = "".join(lines)
    if not stamped:
        text = "\n".join(each.partition("\t")[2] or each for each in text.splitlines()) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


def test_known_step_times_are_found_again(tmp_path):
    found = fit_server_logs([known_log(tmp_path)], name="known", label="", seed=0)
    latency = ProfileLatency(found.profile)
    for rows in (3, 8, 12):
        step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, 4000, 4000)
        known_ns = 1e9 * (DECODE_S + ROW_S * rows)
        assert latency.step_ns(step).device_ns == pytest.approx(known_ns, rel=0.01), rows
        mixed = StepFeatures(ForwardMode.MIXED, 500, 500**2, 1, rows, 4000, 4500)
        known_ns = 1e9 * (PROMPTS_S + TOKEN_S * (500 + rows))
        assert latency.step_ns(mixed).device_ns == pytest.approx(known_ns, rel=0.02), rows


def test_idle_times_are_in_no_step(tmp_path):
    path = known_log(tmp_path)
    times = read_iterations(open_server_log([path]))
    assert max(time.step_ns for time in times.decodes) < 1e9 * (DECODE_S + 40 * ROW_S)
    assert max(chain.wall_s for chain in times.chains) < 1
    # The first prompt after an idle time comes at a moment that no line tells.
    assert all(chain.steps[0].prefill_rows == 0 for chain in times.chains)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The log of the real server up to the middle of its load `rate12`, and the steps of the rest.

    Each step: prompts, prompt tokens, decode rows, tokens of context, and how long it took in s.
    """
    steps, of_load, ends_s, names = [], [], {}, {}
    with gzip.open(REAL / "steps.jsonl.gz", "rt", encoding="utf-8") as file:
        for event in map(json.loads, list(file)[1:]):
            if event["e"] == "a":
                names[str(event["i"])] = event["load"]
            elif event["e"] == "s" and event["n"]:
                steps.append(event)
                of_load.append({names[rid] for rid in event["n"]} == {"rate12"})
            elif event["e"] == "u":
                ends_s[event["k"]] = (event["t"] + event["d"]) / 1e9
    places = [place for place, is_of_load in enumerate(of_load) if is_of_load]
    middle = places[len(places) // 2]
    path = tmp_path_factory.mktemp("real") / "half.log"
    text = gzip.decompress((REAL / "server.log.gz").read_bytes()).decode()
    begin, _, _ = text.partition(f"Iteration({middle}): ")
    path.write_text(begin[: begin.rindex("\n") + 1], encoding="utf-8")
    rest = []
    for place in places[len(places) // 2 :]:
        step, before = steps[place], steps[place - 1]
        prompts = [tokens for tokens in step["n"].values() if tokens > 1]
        rows = len(step["n"]) - len(prompts)
        took_s = ends_s[step["k"]] - ends_s[before["k"]]
        rest.append((len(prompts), sum(prompts), rows, step["c"] + rows, took_s))
    return path, rest


def test_half_a_load_of_a_real_server_tells_the_other_half(real):
    path, rest = real
    latency = ProfileLatency(fit_server_logs([path], name="half", label="", seed=0).profile)
    errors, fitted_s, real_s = [], 0.0, 0.0
    for place, (prompts, tokens, rows, context, took_s) in enumerate(rest):
        if not rows:
            continue
        mode = ForwardMode.MIXED if prompts else ForwardMode.DECODE
        attention = tokens**2 // prompts if prompts else 0
        step = StepFeatures(mode, tokens, attention, prompts, rows, context, context + tokens)
        fitted_s += latency.step_ns(step).device_ns / 1e9
        real_s += took_s
        if not any(each[0] for each in rest[max(place - 1, 0) : place + 2]):
            errors.append(abs(latency.step_ns(step).device_ns / 1e9 / took_s - 1))
    assert len(errors) > 900
    assert np.median(errors) < 0.02
    assert fitted_s == pytest.approx(real_s, rel=0.02)


def test_command_takes_a_model_that_the_log_does_not_name(real, tmp_path, capsys):
    path, _ = real
    out = tmp_path / "half.json"
    assert main(["fit", str(path), "-o", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"calibrate: {path}: model /tmp/llama is not known: give it with --model: a Hugging Face"
        " id, or a folder with its config.json\n"
    )
    assert main(["fit", str(path), "-o", str(out), "--model", "meta-llama/Llama-3.1-8B"]) == 0
    assert "stretches with prefills" in capsys.readouterr().out
    assert read_profile(out).model == "llama-3.1-8b"


def test_power_is_fitted_beside_the_steps(real, tmp_path, capsys):
    path, _ = real
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    files = [tmp_path / "half.log", tmp_path / "half.log.1"]
    files[0].write_text("".join(lines[1000:]), encoding="utf-8")
    files[1].write_text("".join(lines[:1000]), encoding="utf-8")
    out = tmp_path / "half.json"
    command = ["fit", *map(str, files), "-o", str(out), "--model", "llama-3.1-8b"]
    assert main([*command, "--power", str(REAL / "gpu.csv.gz")]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "held-out windows" in each]
    assert line.startswith("power of 1 GPU, fitted to ")
    power = read_profile(out).power
    assert power is not None
    assert power.decode_rows.high > 20
    assert 0 < power.errors.mape_pct < 8
    assert abs(power.errors.total_pct) < 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("Iteration(", "Step("), "--enable-logging-iteration-details"),
        (lambda text: text.replace("GPU KV cache size", "Size"), "does not say how large its KV"),
        (lambda text: text.replace("KV cache usage", "usage"), "how much of its KV pool is used"),
        (lambda text: text.replace("Engine 000", "Engine 001"), "has no lines of steps"),
        (lambda text: text[:3000], "too few decode lines"),
        (lambda text: text.replace("1 context req", f"{10**12} context req"), "is too much"),
        (lambda text: text.replace("400,000 tokens", "9" * 12 + " tokens"), "how large its KV"),
    ],
)
def test_logs_that_cannot_be_fitted_get_one_line(tmp_path, capsys, change, reason):
    path = known_log(tmp_path)
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert main(["fit", str(path), "-o", str(tmp_path / "profile.json")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"calibrate: {path}: ")
    assert reason in error
    assert not (tmp_path / "profile.json").exists()


def test_rotated_log_is_fitted_as_one(tmp_path):
    path = known_log(tmp_path)
    whole = fit_server_logs([path], name="known", label="", seed=0)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[2000:]), encoding="utf-8")
    first = tmp_path / "server.log.1.gz"
    first.write_bytes(gzip.compress("".join(lines[:2000]).encode()))
    found = fit_server_logs([path, first], name="known", label="", seed=0)
    assert found.profile == whole.profile
    assert found.logs[0].paths == [first, path]


def test_a_clock_of_whole_seconds_is_refused(tmp_path, capsys):
    path = known_log(tmp_path, stamped=False)
    assert main(["fit", str(path), "-o", str(tmp_path / "profile.json")]) == 2
    assert "kubectl logs --timestamps" in capsys.readouterr().err


def test_lines_without_a_stamp_are_lost(tmp_path):
    path = known_log(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[1000:1500:50] = [line.partition("\t")[2] for line in lines[1000:1500:50]]
    path.write_text("".join(lines), encoding="utf-8")
    times = read_iterations(open_server_log([path]))
    assert max(chain.wall_s for chain in times.chains) < 1


def test_lost_lines_make_no_long_steps(tmp_path):
    path = known_log(tmp_path)
    whole = read_iterations(open_server_log([path]))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:1000] + lines[1003:]), encoding="utf-8")
    times = read_iterations(open_server_log([path]))
    longest = max(time.step_ns for time in whole.decodes)
    assert max(time.step_ns for time in times.decodes) <= longest * 1.001
