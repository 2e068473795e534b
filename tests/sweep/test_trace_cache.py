"""A worker reads a trace once, unless it changes or there is no room."""

import json

import numpy as np
import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.sweep.plan import plan_sweep
from sim.workers.executor import TraceCache
from sim.workload.config import TraceConfig

ROW = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}


def config(name="trace.jsonl", **options):
    return TraceConfig(kind="trace", format="mooncake", path=name, **options)


@pytest.fixture
def write(tmp_path):
    def rows(num_rows, name="trace.jsonl"):
        text = "".join(json.dumps(ROW | {"timestamp": i}) + "\n" for i in range(num_rows))
        (tmp_path / name).write_text(text)
        return tmp_path

    return rows


def test_trace_cache_reads_once_whatever_is_done_with_the_rows(write, with_sweep):
    """Points that differ in anything but how the file is read share its rows, unaltered."""
    folder = write(20)
    cache = TraceCache()
    rows = cache(config(f"{folder}/trace.jsonl"), folder)
    before = rows.arrival_ns.copy()
    trace = f"{{kind: trace, format: mooncake, path: {folder}/trace.jsonl}}"
    section = "workload.time_scale: [1, 2, 0.5]\nworkload.tenant: [a, b]\nreplicas: [1, 2]"
    plan = plan_sweep(with_sweep(section, f"workload={trace}"))
    for point in plan.points:
        workload = build(plan.vary(point.settings), read_trace=cache).workload
        scale = point.settings["workload.time_scale"]
        arrivals = [request.spec.arrival_ns for request in workload.arrivals()]
        assert arrivals == [round(ns * scale) for ns in before.tolist()]
    assert len(plan.points) == 12
    assert cache.num_read == 1
    assert np.array_equal(rows.arrival_ns, before)


def test_trace_cache_reads_again_what_is_read_otherwise(write):
    """Other limits and block sizes give other rows."""
    folder = write(20)
    cache = TraceCache()
    assert len(cache(config(limit=3), folder).arrival_ns) == 3
    assert len(cache(config(limit=4), folder).arrival_ns) == 4
    assert len(cache(config(limit=3), folder).arrival_ns) == 3
    assert cache.num_read == 2


def test_trace_cache_reads_again_what_has_changed(write):
    """The file is what counts, not its name."""
    cache = TraceCache()
    assert len(cache(config(), write(5)).arrival_ns) == 5
    assert len(cache(config(), write(6)).arrival_ns) == 6
    assert cache.num_read == 2


def test_trace_cache_keeps_within_its_memory(write):
    """The least recently used rows go first; the newest stay whatever their size."""
    folder = write(100, "a.jsonl")
    for name in ("b.jsonl", "c.jsonl"):
        write(100, name)
    one = TraceCache()
    one(config("a.jsonl"), folder)
    assert one.num_bytes >= 100 * 5 * 8
    cache = TraceCache(max_bytes=2 * one.num_bytes)
    for name in ("a", "b", "a", "c", "a", "b"):
        cache(config(f"{name}.jsonl"), folder)
        assert cache.num_bytes <= 2 * one.num_bytes
    assert cache.num_read == 4
    tiny = TraceCache(max_bytes=1)
    tiny(config("a.jsonl"), folder)
    tiny(config("a.jsonl"), folder)
    assert tiny.num_read == 1


def test_trace_cache_missing_file_is_said_as_ever(write):
    """One line with the file's name; and looked for again next time."""
    folder = write(1, "other.jsonl")
    cache = TraceCache()
    with pytest.raises(InputError, match=r"trace\.jsonl: cannot be read: No such file"):
        cache(config(), folder)
    assert len(cache(config(), write(2)).arrival_ns) == 2
