"""Power that is known is found again, and clocks that begin at different times are matched."""

from pathlib import Path

import numpy as np
import pytest

from calibrate.power.fit import fit_power, predicted_w
from calibrate.power.readings import Reading
from calibrate.power.windows import Steps, offset_of_run_log, windows_of
from sim.core.errors import InputError
from sim.metrics.power import ServerPower, Work

KNOWN = ServerPower(
    idle_w=240,
    limit_w=1400,
    joules={"decode_s": 700, "decode_doublings_s": 60, "prefill_s": 1100},
)
BY_WORK = KNOWN._replace(
    joules={"busy_s": 300, "steps": 3, "prefill_tokens": 0.02, "decode_rows": 0.04},
)
NUM_GPUS = 2
# Rows of the largest batch, and how long a decode step takes.
VARIED = ((4, 0.008), (64, 0.012), (16, 0.03), (64, 0.02))


def steps_of(seconds=120.0, *, seed=1, most_rows=64, step_s=0.012, name="run.jsonl"):
    """Steps of 5 to 40 ms with growing and shrinking batches, and idle times between them."""
    rng = np.random.default_rng(seed)
    begin, end, rows, tokens, at_s = [], [], [], [], 0.0
    while at_s < seconds:
        if rng.random() < 0.002:
            at_s += rng.uniform(2, 9)
        is_prefill = rng.random() < 0.1
        last_s = at_s + (0.04 if is_prefill else step_s)
        begin.append(at_s)
        end.append(last_s)
        size = 1 + int((most_rows - 1) * (0.5 + 0.5 * np.sin(at_s / 7)))
        rows.append(0 if is_prefill else size)
        tokens.append(900 if is_prefill else 0)
        at_s = last_s
    begin_s, end_s = np.array(begin), np.array(end)
    ones, counts = np.ones(len(rows), dtype=np.int64), (np.array(rows), np.array(tokens))
    work = Work(end_s - begin_s, ones, *counts, 700 * counts[0])
    return Steps(Path(name), begin_s, end_s, work, window_s=2.0)


def read_beside(steps, *, power=KNOWN, offset_s=0.0, noise_w=0.0, seed=2):
    """What tools read: the mean of the second before, ten times a second, half from each GPU."""
    rng = np.random.default_rng(seed)
    fine_s = np.arange(steps.begin_s[0] - 4, steps.end_s[-1] + 4, 0.001)
    index = np.searchsorted(steps.begin_s, fine_s, side="right") - 1
    is_busy = (index >= 0) & (fine_s < steps.end_s[index])
    busy_w = power.energy_j(steps.work) / steps.work.busy_s
    watts = np.where(is_busy, busy_w[index], power.idle_w)
    mean_w = np.convolve(watts, np.full(1000, 0.001), mode="valid")
    readings = []
    for at_s, each in zip(fine_s[999::100], mean_w[::100], strict=False):
        for gpu in range(NUM_GPUS):
            half = each / NUM_GPUS + noise_w * rng.standard_normal()
            readings.append(Reading(at_s - offset_s, str(gpu), half, 1980.0))
    return readings


def test_known_power_is_found_again():
    steps = steps_of()
    found = fit_power([windows_of(steps, read_beside(steps), 0.0)], [steps], ["power.csv"]).power
    assert found.joules == pytest.approx(KNOWN.joules, rel=0.02)
    assert found.idle_w == pytest.approx(KNOWN.idle_w, rel=0.01)
    assert found.idle_measured
    assert found.gpus == NUM_GPUS
    assert abs(found.errors.total_pct) < 0.5
    assert found.errors.p50_pct < 0.5
    assert (found.decode_rows.low, found.decode_rows.high) == (1, 63)


def test_energy_by_work_is_found_where_that_says_more():
    """With steps of one length per kind, watts by kind and rows would say nearly as much."""
    logs = [steps_of(most_rows=rows, seed=rows, step_s=step_s) for rows, step_s in VARIED]
    windows = [windows_of(each, read_beside(each, power=BY_WORK), 0.0) for each in logs]
    found = fit_power(windows, logs, ["power.csv"]).power
    assert {*found.joules} <= {*BY_WORK.joules, "context_tokens"}
    for each, seen in zip(logs, windows, strict=True):
        assert predicted_w(seen, found).mean() == pytest.approx(seen.watts.mean(), rel=0.01), each


def test_noise_of_every_reading_is_averaged_out():
    steps = steps_of()
    windows = windows_of(steps, read_beside(steps, noise_w=40), 0.0)
    found = fit_power([windows], [steps], ["power.csv"]).power
    assert found.joules == pytest.approx(KNOWN.joules, rel=0.1)


def test_loads_between_two_others_are_predicted():
    """Small and large batches are fitted; those between them, which grow otherwise, are not."""
    logs = [steps_of(most_rows=3, name="a"), steps_of(most_rows=64, seed=3, name="b")]
    windows = [windows_of(each, read_beside(each), 0.0) for each in logs]
    power = fit_power(windows, logs, ["a.csv", "b.csv"]).power
    between = steps_of(most_rows=16, seed=5)
    measured = windows_of(between, read_beside(between), 0.0)
    assert predicted_w(measured, power).mean() == pytest.approx(measured.watts.mean(), rel=0.01)


def test_each_log_is_predicted_from_the_others():
    logs = [steps_of(most_rows=rows, seed=rows, name=str(rows)) for rows in (4, 16, 64)]
    windows = [windows_of(each, read_beside(each), 0.0) for each in logs]
    loads = fit_power(windows, logs, ["a.csv"]).loads
    assert [load.log for load in loads] == ["4", "16", "64"]
    for load in loads:
        assert load.left_out_w == pytest.approx(load.watts, rel=0.02)


def test_server_that_never_rested_says_so():
    steps = steps_of()
    begin_s = np.arange(0, 60, 0.012)
    ones = np.ones(len(begin_s), dtype=np.int64)
    work = Work(0.012 * ones, ones, 8 * ones, 0 * ones, 5000 * ones)
    busy = Steps(steps.path, begin_s, begin_s + 0.012, work, window_s=2.0)
    windows = windows_of(busy, read_beside(busy), 0.0)
    found = fit_power([windows], [busy], ["power.csv"]).power
    assert not found.idle_measured
    assert predicted_w(windows, found).mean() == pytest.approx(700 + 3 * 60, rel=0.01)


@pytest.mark.parametrize("offset_s", [0.0, 1234.5, -3e8])
def test_clocks_are_matched_by_what_steps_draw(offset_s):
    steps = steps_of(60)
    found_s, correlation = offset_of_run_log(steps, read_beside(steps, offset_s=offset_s))
    assert found_s == pytest.approx(offset_s, abs=0.15)
    assert correlation > 0.95


def test_readings_that_follow_no_step_are_refused():
    steps, rng = steps_of(60), np.random.default_rng(4)
    noise = [Reading(float(at_s), "0", 300 + 50 * rng.random(), None) for at_s in range(200)]
    with pytest.raises(InputError, match="follows its steps"):
        offset_of_run_log(steps, noise)


def test_readings_of_two_equal_runs_are_refused():
    """Nothing says which of them the log is of."""
    steps = steps_of(60)
    first, second = (read_beside(steps, offset_s=offset_s) for offset_s in (0.0, -100.0))
    with pytest.raises(InputError, match="several parts of the readings"):
        offset_of_run_log(steps, [*first, *second])


def test_readings_of_another_time_are_refused():
    steps = steps_of(60)
    with pytest.raises(InputError, match=r"from 1970-01-01 00:00:00 to .*--power-offset"):
        windows_of(steps, read_beside(steps, offset_s=1000), 0.0)


def test_run_that_is_shorter_than_a_window_is_refused():
    steps = steps_of(1)
    with pytest.raises(InputError, match=r"^run\.jsonl: lasts 1\.0 s, a window of power 2 s$"):
        windows_of(steps, read_beside(steps_of(60)), 0.0)


def test_readings_of_one_moment_need_not_be_alike():
    """One has a clock, and the other has none."""
    steps = steps_of(60)
    readings = read_beside(steps)
    twice = [*readings, readings[50]._replace(clock_mhz=None)]
    assert windows_of(steps, twice, 0.0).watts == pytest.approx(
        windows_of(steps, readings, 0.0).watts, rel=1e-3
    )


def test_too_few_windows_are_refused():
    steps = steps_of(10)
    with pytest.raises(InputError, match="too few"):
        fit_power([windows_of(steps, read_beside(steps), 0.0)], [steps], ["power.csv"])


def test_window_that_a_gpu_was_not_read_in_is_left_out():
    steps = steps_of(60)
    readings = [one for one in read_beside(steps) if one.gpu == "0" or not 20 < one.at_s < 30]
    whole = windows_of(steps, read_beside(steps), 0.0)
    assert len(whole.watts) - len(windows_of(steps, readings, 0.0).watts) == 4
