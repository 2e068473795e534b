"""Which steps of run logs are used for a fit, and which logs are refused."""

import pytest

from calibrate.dataset import load_dataset
from calibrate.fit import fit_profile
from sim.core.batch import ForwardMode
from sim.core.errors import InputError


def test_dataset_takes_points_and_steps_of_all_logs(linear, write_log, step_line):
    """Each log's counts are kept with its name, and samples by mode."""
    step = step_line(0, "extend", [(0, 64)], 0, 0, forward_ns=500_000, host_ns=7)
    logs = [write_log(linear().decodes(), "p.jsonl.gz"), write_log([step], "r.jsonl")]
    dataset = load_dataset(logs)
    assert [(s.file, s.points, s.steps) for s in dataset.sources] == [
        ("p.jsonl.gz", 161, 0),
        ("r.jsonl", 0, 1),
    ]
    assert list(dataset.samples) == [ForwardMode.EXTEND, ForwardMode.DECODE]
    (sample,) = dataset.samples[ForwardMode.EXTEND]
    assert (sample.device_ns, sample.host_ns, sample.scheduling) == (500_000, 7, "overlap")


def test_dataset_different_fingerprints_are_refused(linear, write_log):
    """The first key that differs is named, with both values."""
    logs = [write_log(linear().decodes(), name) for name in ("a.jsonl", "b.jsonl")]
    load_dataset(logs)
    other = write_log(linear().decodes(), "c.jsonl", fingerprint={"driver": "2.0", "dtype": "f32"})
    with pytest.raises(
        InputError, match=r"c\.jsonl: fingerprint\.driver: '2\.0' is not the '1\.0' of a\.jsonl"
    ):
        load_dataset([*logs, other])


@pytest.mark.parametrize("wrong", [0, -5, None, "7", True, 10**30])
def test_dataset_time_that_is_none_is_refused(linear, write_log, wrong):
    """File, line and key are named."""
    lines = list(linear().decodes())
    lines[3]["forward_ns"] = wrong
    with pytest.raises(InputError, match=r"a\.jsonl:5: forward_ns: must be "):
        load_dataset([write_log(lines)])


@pytest.mark.parametrize(
    "change",
    [{"mode": "verify"}, {"prefill": [[1, 2]]}, {"n_decode": 0}, {"ctx": -1}, {"n_decode": "4"}],
)
def test_dataset_step_that_is_none_is_refused(linear, write_log, change):
    """Unknown modes, malformed rows, and steps without rows are refused."""
    lines = list(linear().decodes())
    lines[3].update(change)
    with pytest.raises(InputError, match=r"a\.jsonl(:5|: point 3): "):
        load_dataset([write_log(lines)])


def test_dataset_of_nothing_is_refused(write_log):
    """A log may hold no steps; a profile cannot."""
    with pytest.raises(InputError, match=r"a\.jsonl: neither steps nor points to fit"):
        load_dataset([write_log([])])


def test_dataset_points_without_host_times_need_a_run(linear, write_log):
    """A profile needs host times, too."""
    lines = list(linear().decodes())
    for line in lines:
        del line["plan_ns"]
    with pytest.raises(InputError, match=r"a\.jsonl: no host times of decode steps"):
        fit_profile(load_dataset([write_log(lines)]), name="hostless")


def test_dataset_prefill_of_one_token_in_a_graph_is_a_decode(linear, write_log):
    """The runner replays a graph for it, so it tells nothing of eager steps."""
    point = next(iter(linear().extends()))
    point |= {"prefill": [["", 31, 1], ["", 15, 1]], "ctx": 48, "padded_rows": 2}
    (sample,) = load_dataset([write_log([point])]).samples[ForwardMode.DECODE]
    assert (sample.step.num_decode_rows, sample.step.num_decode_context_tokens) == (2, 48)


def test_dataset_context_that_no_profile_could_hold_is_refused(linear, write_log):
    point = next(iter(linear().decodes())) | {"ctx": 10**11}
    with pytest.raises(InputError, match=r"point 0: ctx: must be at most 1,000,000,000"):
        load_dataset([write_log([point])])
