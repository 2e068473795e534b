"""The power of real vLLM servers (data/README.md): what half of the time says of the other half,
and some loads of another.
"""

import gzip
import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calibrate.power.add import PowerReadings, with_power_of_run_logs
from calibrate.power.fit import fit_power, predicted_w
from calibrate.power.readings import read_readings
from calibrate.power.windows import offset_of_run_log, steps_of_run_log, windows_of
from sim.core.errors import InputError
from sim.latency.profile.format import load_profile, parse_profile, profile_text
from tests.support.vllm_server import MEASURED, events_of, write_as_run_log

H100, MIXTURE = "vllm-0.26-h100-llama-3.1-8b", "vllm-0.26-h200-qwen3-30b-a3b"
# Loads `stall` and `neighbour` are left out: in one the engine was stopped three times for a
# second, in which a log says that a step ran; in the other another program used the GPU.
RUNS = {
    "dense": (
        (H100, "rate12"), (H100, "clients64"), (H100, "rate20"), (H100, "burst"),
        (f"{H100}-faults", "rate12"), (f"{H100}-small-pool", "rate20"),
    ),
    "mixture": tuple(
        (MIXTURE, load) for load in ("rate4", "rate12", "clients64", "prefixes", "burst")
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of the servers of a kind: each load's steps, windows and readings."""
    folder = tmp_path_factory.mktemp("logs")

    @cache
    def runs_of(kind):
        return {run: measured(*run, folder) for run in RUNS[kind]}

    return runs_of


def measured(server, load, folder):
    path = folder / f"{server}-{load}.jsonl"
    write_as_run_log((server, load), path)
    steps = steps_of_run_log(path)
    readings = read_readings(MEASURED / server / "gpu.csv.gz").readings
    return steps, windows_of(steps, readings, clock_offset_s(server, load)), readings


def clock_offset_s(server, load):
    """From Unix time to the run log's: the server's first line has a moment on both clocks."""
    with gzip.open(MEASURED / server / "steps.jsonl.gz") as lines:
        clocks = json.loads(lines.readline())
    begin_ns = events_of(server)[load][0]["t"]
    return -(begin_ns + clocks["wall_ns"] - clocks["monotonic_ns"]) / 1e9


def half_of(windows, is_second):
    middle = len(windows.watts) // 2
    part = slice(middle, None) if is_second else slice(middle)
    amounts = {name: values[part] for name, values in windows.amounts.items()}
    assert [field.name for field in fields(windows)][1:3] == ["watts", "amounts"]
    return replace(windows, watts=windows.watts[part], amounts=amounts)


@pytest.mark.parametrize(
    ("kind", "off_pct", "sum_pct"),
    [("dense", 1.6, -0.1), pytest.param("mixture", 4.1, 1.4, marks=pytest.mark.long)],
)
def test_first_halves_of_loads_say_what_the_second_halves_draw(runs, kind, off_pct, sum_pct):
    """In windows of two seconds, and in sum."""
    steps, windows, _ = zip(*runs(kind).values(), strict=True)
    power = fit_power([half_of(each, False) for each in windows], steps, ["gpu.csv"]).power
    second = [half_of(each, True) for each in windows]
    watts = np.concatenate([each.watts for each in second])
    predicted = np.concatenate([predicted_w(each, power) for each in second])
    assert len(watts) >= 25
    assert 100 * np.abs(predicted / watts - 1).mean() == pytest.approx(off_pct, abs=0.2)
    assert 100 * (predicted.sum() / watts.sum() - 1) == pytest.approx(sum_pct, abs=0.2)


@pytest.mark.parametrize(
    ("kind", "errors_pct"),
    [("dense", [1.3, -1.3, 0.2, -2.0, 1.8, -1.4]), ("mixture", [7.8, 1.3, -1.6, -1.1, -0.5])],
)
def test_loads_are_predicted_from_the_others(runs, kind, errors_pct):
    steps, windows, _ = zip(*runs(kind).values(), strict=True)
    loads = fit_power(windows, steps, ["gpu.csv"]).loads
    found = [100 * (load.left_out_w / load.watts - 1) for load in loads]
    assert found == pytest.approx(errors_pct, abs=0.3)


def test_power_is_that_of_the_gpus(runs):
    for kind in RUNS:
        steps, windows, _ = zip(*runs(kind).values(), strict=True)
        power = fit_power(windows, steps, ["gpu.csv"]).power
        assert power.gpus == 1
        assert 700 < power.limit_w < 780
        assert power.clock_mhz.high == 1980


def test_steps_of_a_mixture_take_more_energy_the_more_experts_they_read(runs):
    """As no watts of a kind of step say: these are up to 34 % off."""
    steps, windows, _ = zip(*runs("mixture").values(), strict=True)
    assert "step_doublings" in fit_power(windows, steps, ["gpu.csv"]).power.joules


@pytest.mark.parametrize("run", [run for run in RUNS["dense"] if run[1] != "burst"])
def test_clocks_are_matched_as_the_server_noted_them(runs, run):
    steps, _, readings = runs("dense")[run]
    found_s, correlation = offset_of_run_log(steps, readings)
    assert found_s == pytest.approx(clock_offset_s(*run), abs=0.2)
    assert correlation > 0.98


def test_clock_that_cannot_be_matched_is_not_guessed(runs):
    """Where the draw of a mixture's steps is not what it is taken for, a wrong place fits best."""
    steps, _, readings = runs("mixture")[MIXTURE, "rate4"]
    with pytest.raises(InputError, match="--power-offset says which"):
        offset_of_run_log(steps, readings)


def test_profile_gets_the_power_of_its_run_logs(runs):
    """Without an offset, the clocks are matched, and a line says how."""
    profile = load_profile("example/tiny-cpu", Path())
    logs = [runs("dense")[H100, load][0].path for load in ("rate12", "rate20")]
    csv = MEASURED / H100 / "gpu.csv.gz"
    added = with_power_of_run_logs(profile, logs, PowerReadings.of([csv, csv], None))
    assert [row[0] for row in added.tables[1].rows] == [log.name for log in logs]
    assert "were matched by what steps draw: correlation 0.99" in added.lines[0]
    again = parse_profile(profile_text(added.profile), "profile")
    assert again.power == added.profile.power
    with pytest.raises(InputError, match="got 1 of them for 2 run logs with steps"):
        with_power_of_run_logs(profile, logs, PowerReadings.of([csv], None))
