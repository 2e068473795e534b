"""Fits recover the step times of simulated devices."""

import numpy as np
import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile, fit_remarks
from calibrate.fit_mode import predict
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.features import line_features
from sim.latency.profile.format import profile_text
from sim.latency.profile.model import ProfileLatency


@pytest.fixture
def fitted(write_log):
    """The profile of some lines."""

    def fit(lines, **options):
        return fit_profile(load_dataset([write_log(lines)]), name="fitted", **options)

    return fit


def coefficient(profile, mode, term):
    return sum(t.ns for t in profile.modes[mode].terms if (t.term, t.knee) == (term, 0))


def test_fit_linear_truth_is_recovered(linear, fitted):
    """Coefficients are those that made the times, and held-out errors are of the noise's size."""
    device = linear()
    profile = fitted([*device.decodes(), *device.extends(), *device.mixed()])
    for errors in (section.errors for section in profile.modes.values()):
        assert errors.mape_pct < 1
        assert abs(errors.total_pct) < 0.2
    assert coefficient(profile, "decode", "constant") == pytest.approx(200_000, rel=0.03)
    assert coefficient(profile, "decode", "decode_context") == pytest.approx(8, rel=0.01)
    assert coefficient(profile, "decode", "eager") == pytest.approx(300_000, rel=0.1)
    assert coefficient(profile, "extend", "attention") == pytest.approx(0.05, rel=0.05)
    assert profile.graph_sizes == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def test_fit_bent_truth_is_followed(bent, fitted):
    """Padded batches and two knees, one of which no term can follow: held-out errors below 2 %."""
    device = bent()
    profile = fitted([*device.decodes(), *device.extends(), *device.mixed()])
    for section in profile.modes.values():
        assert section.errors.mape_pct < 2
    assert profile.modes["decode"].correction is not None


def test_fit_errors_are_those_of_steps_not_seen(bent, fitted):
    """The profile's errors are larger than those of the fit on the points it has seen."""
    lines = list(bent(noise=0.02).decodes())
    profile = fitted(lines)
    section = profile.modes["decode"]
    model = ProfileLatency(profile)
    predicted = np.array([model.step_ns(line_features(line)).device_ns for line in lines])
    measured = np.array([line["forward_ns"] for line in lines])
    assert section.errors.points == len(lines)
    assert 100 * np.abs(predicted / measured - 1).mean() < section.errors.mape_pct


def test_fit_judges_what_the_simulator_will_predict_and_is_the_same_twice(bent, fitted, write_log):
    """The vector that errors come from is that of the shipped model, to its rounding to ns."""
    profile = fitted(bent().decodes())
    samples = load_dataset([write_log(bent().decodes())]).samples[ForwardMode.DECODE]
    fast = predict(profile.modes["decode"], samples, profile.graph_sizes)
    model = ProfileLatency(profile)
    assert [model.step_ns(sample.step).device_ns for sample in samples] == pytest.approx(
        fast, abs=1
    )
    # A fit does not depend on the clock. The seed only decides which points are held out.
    assert profile_text(profile) == profile_text(fitted(bent().decodes()))
    other = fitted(bent().decodes(), seed=5)
    assert profile.modes["decode"].errors != other.modes["decode"].errors


def test_fit_hiccups_are_counted_and_do_not_mislead(linear, fitted):
    """Every 25th time is ten times too long: the terms stay right, and outliers are counted."""
    device = linear(hiccup_every=25)
    lines = list(device.decodes())
    profile = fitted(lines)
    assert coefficient(profile, "decode", "decode_context") == pytest.approx(8, rel=0.02)
    errors = profile.modes["decode"].errors
    assert errors.outliers == len(lines) // 25
    assert errors.p50_pct < 1
    assert errors.max_pct > 80


def test_fit_absent_modes_stay_absent(linear, fitted):
    """Mixed steps are then composed, which is right for this device."""
    device = linear(noise=0.0)
    profile = fitted([*device.decodes(), *device.extends()])
    assert list(profile.modes) == ["extend", "decode"]
    model = ProfileLatency(profile)
    lines = list(device.mixed())
    predicted = [model.step_ns(line_features(line)).device_ns for line in lines]
    assert predicted == pytest.approx([line["forward_ns"] for line in lines], rel=0.02)


def test_fit_few_points_say_how_unsure_they_are(linear, write_log):
    """Four corners are enough for the terms; the remark has the error of each from the others."""
    corners = [(rows, rows * mean) for rows in (1, 256) for mean in (16, 8_192)]
    lines = [linear(noise=0.0).point("decode", [], *corner) for corner in corners]
    dataset = load_dataset([write_log(lines, graph_sizes=[1, 256])])
    profile = fit_profile(dataset, name="few")
    (remark,) = fit_remarks(dataset, profile)
    assert remark.startswith("decode: fitted to 4 different points, without knees and table.")
    assert f"{profile.modes['decode'].errors.max_pct:.1f} % at most" in remark
    middle = line_features(linear(noise=0.0).point("decode", [], 200, 200 * 500))
    expected_ns = 200_000 + 8_000 * 256 + 1_500 * 200 + 8 * 200 * 500
    assert ProfileLatency(profile).step_ns(middle).device_ns == pytest.approx(expected_ns, rel=0.1)


def test_fit_errors_on_whole_logs_and_beyond_the_range(linear, bent, write_log):
    """A log of another device cannot be predicted; linear times go on as they do.

    Without the steps above 192 rows no step is eager: what that costs is not known (9 %).
    """
    steady = linear(noise=0.0)
    logs = [write_log(steady.decodes(), "one.jsonl"), write_log(steady.decodes(), "two.jsonl")]
    found = fit_profile(load_dataset(logs), name="alike").left_out
    assert [left.what for left in found] == [
        "one.jsonl", "two.jsonl", "decode rows above 192", "mean decode context above 4,096"
    ]  # fmt: skip
    assert {left.mode for left in found} == {"decode"}
    largest_pct = [left.errors.max_pct for left in found]
    assert max(largest_pct[:2]) < 0.1
    assert 2 < largest_pct[2] < 10
    assert largest_pct[3] < 2
    logs[1] = write_log(bent(noise=0.0).decodes(), "two.jsonl")
    other = fit_profile(load_dataset(logs), name="different").left_out
    assert min(left.errors.mape_pct for left in other[:2]) > 10


def test_fit_one_point_is_refused(linear, fitted):
    """Equal points count once."""
    line = next(iter(linear().decodes()))
    with pytest.raises(InputError, match=r"decode: one point is too few to fit, at least 2"):
        fitted([line] * 5)


def test_fit_a_composition_counts_once_however_often_it_ran(bent, fitted):
    """A thousand steps of one kind do not pull the fit away from the others."""
    lines = list(bent(noise=0.0).decodes())
    once, often = fitted(lines), fitted([*lines, *[lines[40]] * 1_000])
    assert often.modes["decode"].terms == once.modes["decode"].terms


def test_fit_spread_of_contexts_is_related_to_what_is_left_over(linear, fitted):
    """If long rows make steps longer, the profile says how much of the residuals that explains."""
    device = linear(noise=0.0)
    rng = np.random.default_rng(0)
    lines = []
    for line in device.decodes():
        extra = rng.uniform(0, 1)
        mean = line["ctx"] / line["n_decode"]
        longer = int(line["forward_ns"] * (1 + 0.02 * extra))
        lines.append(
            line | {"forward_ns": longer, "max_decode_ctx": round(mean * 100 * (1 + extra))}
        )
    spread = fitted(lines).decode_spread
    assert spread.correlation > 0.9
    assert spread.variance_pct == pytest.approx(100 * spread.correlation**2, abs=0.1)
    assert spread.points == len(lines)


def test_fit_without_known_spread_or_need_of_a_table_has_neither(linear, fitted):
    """Logs that lack the longest context are fine; linear times need no correction."""
    profile = fitted([line | {"max_decode_ctx": 0} for line in linear().decodes()])
    assert profile.decode_spread is None
    assert profile.modes["decode"].correction is None
