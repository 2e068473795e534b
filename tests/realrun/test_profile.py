"""Profiles under a clock that the test sets, and one of a real tiny model."""

import io
import json

import numpy as np
import pytest
import torch

from realrun.cli import main
from realrun.clock import Budget
from realrun.profiling.composition import Composition
from realrun.profiling.grid import decode, extend
from realrun.profiling.grid_run import DurationEstimates, Measurement, measure_grid
from realrun.profiling.measure import StepMeter
from realrun.profiling.points import grid_counts, point_lines, summary_lines
from realrun.runner.warm_runner import RunnerOptions, warm_runner
from sim.latency.features import line_features
from sim.runlog.run_log_file import read_run_log

ROUNDS = [[decode(1, 16), decode(4, 16)], [decode(2, 16), decode(3, 16), extend(1, 8, 0)]]


class Device:
    """A fake meter and clock: a step takes a second for each row."""

    def __init__(self):
        self.now_s = 0.0
        self.seen = []

    def clock(self):
        return self.now_s

    def __call__(self, composition):
        self.seen.append(composition)
        self.now_s += composition.num_rows
        forward_ns = 1000 * composition.num_rows + len(self.seen)
        return Measurement(forward_ns, 5, 6, 7, 8, 0)

    def budget(self, seconds):
        return Budget(seconds, began_s=0.0, clock=self.clock)


def walk(device, budget_s=None, rounds=ROUNDS, repeats=3, seed=1, measure=None):
    return measure_grid(
        rounds,
        measure or device,
        flops=lambda point: float(point.num_new_tokens),
        budget=device.budget(budget_s),
        repeats=repeats,
        seed=seed,
    )


def test_walk_without_budget_measures_all_repeats_round_by_round():
    """Each pass through a round holds each of its compositions once."""
    device = Device()
    measured = walk(device)
    assert measured.stopped == "complete"
    assert measured.num_steps == 15
    assert {len(repeats) for repeats in measured.points.values()} == {3}
    for begin in (0, 2, 4):
        assert set(device.seen[begin : begin + 2]) == set(ROUNDS[0])
    for begin in (6, 9, 12):
        assert set(device.seen[begin : begin + 3]) == set(ROUNDS[1])


def test_walk_order_is_random_and_repeatable():
    """The same seed gives the same order, another one another."""
    orders = []
    for seed in (1, 1, 2):
        device = Device()
        walk(device, rounds=[[decode(rows, 16) for rows in range(1, 9)]], seed=seed)
        orders.append(device.seen)
    assert orders[0] == orders[1] != orders[2]


def test_walk_with_budget_ends_in_time_and_keeps_what_it_has():
    """No step is begun that would not fit into what is left."""
    device = Device()
    points = [decode(rows, 16) for rows in (1, 2, 3, 4)]
    measured = walk(device, budget_s=100.0, rounds=[points], repeats=20)
    assert measured.stopped == "budget"
    assert 95.0 <= device.now_s <= 100.0
    assert set(measured.points) == set(points)


def test_walk_with_budget_leaves_out_what_would_take_too_much_of_it():
    """A point of a twentieth of the budget stands for a hundred that would not be measured."""
    device = Device()
    measured = walk(device, budget_s=60.0, rounds=[[decode(1, 16)], [decode(4, 16)]], repeats=2)
    assert list(measured.points) == [decode(1, 16)]
    assert measured.too_long == {decode(4, 16)}
    assert measured.stopped == "complete"


def test_walk_ends_when_the_device_has_failed():
    """After an error inside a kernel nothing more is tried, and the points before it are kept."""
    device = Device()

    def measure(composition):
        if composition.num_rows >= 3:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        return device(composition)

    measured = walk(device, measure=measure)
    assert measured.stopped == "failed"
    assert "illegal memory access" in measured.failure
    assert not any(composition.num_rows >= 3 for composition in measured.points)


def test_walk_with_spent_budget_measures_nothing():
    """Loading a model may take all of it."""
    device = Device()
    device.now_s = 20.0
    assert not walk(device, budget_s=10.0).points


def test_walk_interrupted_keeps_what_was_measured():
    """Ctrl-C in the middle of the seventh step costs that step."""
    device = Device()

    def measure(composition):
        if len(device.seen) == 6:
            raise KeyboardInterrupt
        return device(composition)

    measured = walk(device, measure=measure)
    assert measured.stopped == "interrupted"
    assert measured.num_steps == 6


def test_walk_out_of_memory_leaves_out_larger_ones_of_its_kind():
    """What fits is measured, other kinds too; what cannot fit is not tried again."""
    device = Device()
    tried = []

    def measure(composition):
        tried.append(composition)
        if composition.num_rows >= 3:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB")
        return device(composition)

    measured = walk(device, measure=measure)
    assert set(measured.points) == {decode(1, 16), decode(2, 16), extend(1, 8, 0)}
    assert measured.num_steps == 9
    assert tried.count(decode(4, 16)) == 1
    assert [point for point, _ in measured.refused] == [decode(4, 16), decode(3, 16)]
    counts = grid_counts(measured, 5, 0)
    assert (counts["points"], counts["measured"], counts["refused"]) == (5, 3, 2)
    assert "out of memory. Tried to" in list(summary_lines(measured, 5, []))[-1]


def test_walk_fault_of_ours_is_not_hidden():
    """Only what torch and the backends complain about is a property of the composition."""

    def measure(_composition):
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        walk(Device(), measure=measure)


def test_points_hold_median_and_quartiles():
    """Five repeats of one composition: the middle one, and what lies between the quarters."""
    device = Device()
    measured = walk(device, rounds=[[Composition(((16, 8),), (5, 7))]], repeats=5)
    (line,) = point_lines(measured)
    assert line["forward_ns"] == 3003
    assert line["forward_iqr_ns"] == 2
    assert line["repeats"] == 5
    assert line["prefill"] == [["", 16, 8]]
    assert (line["mode"], line["n_decode"], line["ctx"]) == ("mixed", 2, 36)
    assert (line["max_decode_ctx"], line["padded_rows"]) == (7, 0)


def test_estimates_are_bound_by_the_neighbours():
    """More arithmetic takes at most in proportion more time, less of it no more time."""
    times = DurationEstimates()
    assert times.at_most_s(5.0) == 0.0
    times.note(10.0, 1.0)
    times.note(1000.0, 4.0)
    assert times.at_most_s(5.0) == 1.0
    assert times.at_most_s(20.0) == 2.0
    assert times.at_most_s(500.0) == 4.0
    assert times.at_most_s(2000.0) == 8.0


def test_meter_scatters_pages_and_warms_up(paged_models, monkeypatch):
    """Each step runs twice on the same pages, which no two rows share and no order governs."""
    options = RunnerOptions(device="cpu")
    model = paged_models["llama"]
    with warm_runner(model, options, num_pages=64, page_size=4, max_rows=3) as warm:
        meter = StepMeter(warm, max_rows=3, seed=1)
        plans = []
        prepare = warm.runner.prepare
        monkeypatch.setattr(
            warm.runner, "prepare", lambda plan: plans.append(plan) or prepare(plan)
        )
        measurement = meter(Composition(((8, 20),), (41, 70)))
    first, second = (plan.kv_indices.tolist() for plan in plans)
    assert first == second
    assert len(set(first)) == len(first) == 7 + 11 + 18
    assert np.mean(np.diff(first) == 1) < 0.2
    assert plans[0].kv_lens.tolist() == [28, 41, 70]
    assert measurement.forward_ns > 0


@pytest.fixture(scope="module")
def profiled(config_paths, tmp_path_factory):
    """A profile of the tiny llama: its log's path, and what was printed."""
    path = tmp_path_factory.mktemp("profile") / "log.jsonl.gz"
    arguments = ["--max-context", "32", "--max-rows", "3", "--repeats", "2", "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", printed := io.StringIO())
        code = main(
            ["profile", "--model", str(config_paths["llama"]), "--out", str(path), *arguments]
        )
    assert code == 0
    return path, printed.getvalue()


def test_profile_of_a_tiny_model_can_be_read_and_fitted(profiled):
    """Every mode is there, with finite features and times, on the fingerprint of the rig."""
    log = read_run_log(profiled[0])
    assert log.meta["source"] == "profile"
    assert json.dumps(log.meta["options"])
    assert log.meta["limits"]["max_context"] == 32
    assert log.meta["limits"]["num_pages"] == 3 * 2
    assert log.fingerprint["model"] == "llama"
    assert log.meta["grid"]["measured"] == log.meta["grid"]["points"] == len(log.points)
    assert {line["mode"] for line in log.points} == {"extend", "decode", "mixed"}
    for line in log.points:
        assert np.isfinite(line_features(line).totals).all()
        assert line["repeats"] == 2
        assert line["forward_ns"] >= 1
        assert min(line[key] for key in ("plan_ns", "launch_ns", "sample_ns")) > 0
        assert line["max_decode_ctx"] <= 32


def test_profile_says_what_it_holds(profiled):
    """Points of how many, why it ended, each mode's range, and where the log is."""
    lines = profiled[1].splitlines()
    assert "the grid is complete" in lines[0]
    assert [line.split(":")[0] for line in lines[1:4]] == ["extend", "decode", "mixed"]
    assert lines[-1] == f"log: {profiled[0]}"


def test_profile_continues_an_earlier_one(config_paths, tmp_path, capsys):
    """A second call keeps the points of the first, byte by byte, and measures the others."""
    path = tmp_path / "log.jsonl"
    arguments = ["--max-context", "16", "--max-rows", "2", "--device", "cpu", "--repeats", "1"]
    command = ["profile", "--model", str(config_paths["llama"]), "--out", str(path), *arguments]
    assert main(command) == 0
    whole = path.read_text().splitlines()
    first, points, end = whole[0], whole[1:-1], json.loads(whole[-1])
    kept = points[::3]
    end["lines"] = len(kept)
    path.write_text("\n".join([first, *kept, json.dumps(end)]) + "\n")
    capsys.readouterr()
    assert main(command) == 0
    assert f"{len(points) - len(kept)} steps in this call" in capsys.readouterr().out
    again = path.read_text().splitlines()[1:-1]
    assert again[: len(kept)] == kept
    assert len(again) == len(points)
    assert main([*command[:-1], "2"]) == 0
    assert "another repeats than now: it is measured again" in capsys.readouterr().err


def test_profile_interrupted_writes_its_log_first(config_paths, tmp_path, monkeypatch, capsys):
    """Exit code 130, and a whole log of what was measured until then."""
    path = tmp_path / "log.jsonl"
    visits = []

    def interrupt(_progress, num_visits, _now_ns):
        visits.append(num_visits)
        if num_visits == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("sim.report.progress.Progress.update", interrupt)
    arguments = ["--max-context", "16", "--max-rows", "2", "--device", "cpu"]
    code = main(["profile", "--model", str(config_paths["llama"]), "--out", str(path), *arguments])
    assert code == 130
    log = read_run_log(path)
    assert log.meta["grid"]["stopped"] == "interrupted"
    assert sum(line["repeats"] for line in log.points) == 4
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-context", "513"], "--max-context 513: llama has only 512 positions"),
        (["--page-size", "129"], "page_size 129"),
        (["--budget-s", "0"], "nothing could be measured"),
        (["--device", "cuda:99"], "device cuda:99"),
    ],
)
def test_profile_of_bad_input_says_one_line(config_paths, tmp_path, capsys, arguments, message):
    """Exit code 2, no log, no traceback."""
    path = tmp_path / "log.jsonl"
    arguments = ["--max-context", "16", "--max-rows", "1", "--device", "cpu", *arguments]
    assert (
        main(["profile", "--model", str(config_paths["llama"]), "--out", str(path), *arguments])
        == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not path.exists()
