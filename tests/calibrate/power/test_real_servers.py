"""The power of real vLLM servers on an H100 (data/README.md): what half of the time says of the
other half, and some loads of another.
"""

import gzip
import json
from dataclasses import fields, replace
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

SERVER = "vllm-0.26-h100-llama-3.1-8b"
FAULTS, SMALL_POOL = f"{SERVER}-faults", f"{SERVER}-small-pool"
# `stall` is left out: its engine was stopped for a second three times, in which a log says that a
# step ran. So is `neighbour`: another program used the GPU.
RUNS = (
    (SERVER, "rate12"), (SERVER, "clients64"), (SERVER, "rate20"), (SERVER, "burst"),
    (FAULTS, "rate12"), (SMALL_POOL, "rate20"),
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of each load its steps and its windows."""
    folder, found = tmp_path_factory.mktemp("logs"), {}
    for server, load in RUNS:
        path = folder / f"{server}-{load}.jsonl"
        write_as_run_log((server, load), path)
        steps = steps_of_run_log(path)
        readings = read_readings(MEASURED / server / "gpu.csv.gz").readings
        windows = windows_of(steps, readings, clock_offset_s(server, load))
        found[server, load] = steps, windows, readings
    return found


def clock_offset_s(server, load):
    """From Unix time to the run log's: the server's first line has a moment on both clocks."""
    with gzip.open(MEASURED / server / "steps.jsonl.gz") as lines:
        clocks = json.loads(lines.readline())
    begin_ns = events_of(server)[load][0]["t"]
    return -(begin_ns + clocks["wall_ns"] - clocks["monotonic_ns"]) / 1e9


def half_of(windows, is_second):
    middle = len(windows.watts) // 2
    part = slice(middle, None) if is_second else slice(middle)
    arrays = {
        field.name: getattr(windows, field.name)[part]
        for field in fields(windows)
        if isinstance(getattr(windows, field.name), np.ndarray)
    }
    return replace(windows, **arrays)


def test_first_halves_of_loads_say_what_the_second_halves_draw(runs):
    """2.0 % off in a window of two seconds, and +0.4 % in sum."""
    steps, windows, _ = zip(*runs.values(), strict=True)
    power = fit_power([half_of(each, False) for each in windows], steps, ["gpu.csv"]).power
    second = [half_of(each, True) for each in windows]
    measured = np.concatenate([each.watts for each in second])
    predicted = np.concatenate([predicted_w(each, power) for each in second])
    errors_pct = 100 * (predicted / measured - 1)
    assert len(measured) >= 30
    assert np.abs(errors_pct).mean() == pytest.approx(2.0, abs=0.2)
    assert 100 * (predicted.sum() / measured.sum() - 1) == pytest.approx(0.4, abs=0.2)


def test_loads_are_predicted_from_the_others(runs):
    """Also those of other servers of the same kind: all within 2.1 %."""
    steps, windows, _ = zip(*runs.values(), strict=True)
    loads = fit_power(windows, steps, ["gpu.csv"]).loads
    assert [100 * (load.left_out_w / load.watts - 1) for load in loads] == pytest.approx(
        [1.3, -1.3, 0.2, -2.0, 1.8, -1.4], abs=0.3
    )


def test_power_is_that_of_an_h100(runs):
    steps, windows, _ = zip(*runs.values(), strict=True)
    power = fit_power(windows, steps, ["gpu.csv"]).power
    assert power.gpus == 1
    assert 700 <= power.limit_w < 740
    assert power.clock_mhz.high == 1980
    assert 300 < power.decode_w < power.prefill_w < 740


@pytest.mark.parametrize("run", [run for run in RUNS if run[1] != "burst"])
def test_clocks_are_matched_as_the_server_noted_them(runs, run):
    steps, _, readings = runs[run]
    found_s, correlation = offset_of_run_log(steps, readings)
    assert found_s == pytest.approx(clock_offset_s(*run), abs=0.2)
    assert correlation > 0.98


def test_profile_gets_the_power_of_its_run_logs(runs):
    """Without an offset, the clocks are matched, and a line says how."""
    profile = load_profile("example/tiny-cpu", Path())
    logs = [runs[SERVER, load][0].path for load in ("rate12", "rate20")]
    csv = MEASURED / SERVER / "gpu.csv.gz"
    added = with_power_of_run_logs(profile, logs, PowerReadings.of([csv, csv], None))
    assert [row[0] for row in added.table.rows] == [log.name for log in logs]
    assert "were matched by what steps draw: correlation 0.99" in added.lines[0]
    again = parse_profile(profile_text(added.profile), "profile")
    assert again.power == added.profile.power
    with pytest.raises(InputError, match="got 1 of them for 2 run logs with steps"):
        with_power_of_run_logs(profile, logs, PowerReadings.of([csv], None))
