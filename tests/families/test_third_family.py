"""A family from outside the project is served without changing a line of the project.

The whole family is the start file of `python -m sim.new family`.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from realrun.runner.warm_runner import RunnerOptions, load_with_options, warm_runner
from realrun.server.serve_workload import serve as serve_for_real
from sim.core.batch import ScriptedExecutor
from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, of_one_server, replay
from sim.families import FAMILIES, build_engine
from sim.new.starts import family as slots
from sim.runlog.run_log_file import RecordedRun
from sim.testing.contracts import SchedulerContract
from sim.workload.workload import listed
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import serve
from tests.support.workloads import scripted

SOURCE = Path(slots.__file__)


@pytest.fixture(autouse=True)
def third_family(monkeypatch):
    """The one line in the mapping that a new family needs."""
    monkeypatch.setitem(FAMILIES, "slots", slots.Slots())


def test_third_family_is_small():
    """A family says little beside its rules."""
    assert len(SOURCE.read_text("utf-8").splitlines()) <= 170


class TestSlots(SchedulerContract):
    """The contract of every family's scheduler."""

    @pytest.fixture(params=[False, True], ids=["normal", "overlap"])
    def make_config(self, request):
        return lambda pool_tokens, page_size, most_rows: slots.SlotsConfig(
            pool_tokens, page_size, most_rows, overlaps=request.param
        )


def slots_configs():
    return st.builds(
        lambda pages, page_size, rows, overlaps: slots.SlotsConfig(
            max(pages * page_size, 300) // page_size * page_size, page_size, rows, overlaps
        ),
        st.integers(8, 60),
        st.sampled_from((1, 4, 16)),
        st.integers(1, 8),
        st.booleans(),
    )


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(random_scenarios(slots_configs()))
def test_fast_forward_any_scenario_leaves_the_same_log(scenario):
    """INV-12, with every invariant checked after each step."""
    runs = [
        serve(scenario.workload, scenario.config, scenario.latencies(), fast_forward=fast).text
        for fast in (True, False)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("overlaps", [False, True])
def test_real_run_is_decided_again(overlaps):
    """A real model on the CPU serves the family's decisions; a simulated engine repeats them."""
    requests = [
        scripted(f"r{i}", (i, 5 + 9 * (i % 4)), output=2 + 5 * i % 17, arrival_ns=i * 3_000_000)
        for i in range(12)
    ]
    config = slots.SlotsConfig(400, 16, 3, overlaps)
    options = RunnerOptions(device="cpu")
    model = load_with_options("tiny", options)
    with warm_runner(model, options, num_pages=25, page_size=16, max_rows=3, cpu_threads=1) as warm:
        lines = serve_for_real(warm, config, listed(requests)).lines()
        run = RecordedRun.of_lines({"source": "realrun", "fingerprint": {}}, lines)
    assert [line["status"] for line in run.requests] == ["finished"] * 12
    executor = ScriptedExecutor()
    arrival_ns = {line["rid"]: line["arrival_ns"] for line in run.requests}
    for request in requests:
        executor.add(request.spec.rid, request.script, ignore_eos=False)
    arrivals = [request.sent_at(arrival_ns[request.spec.rid]).spec for request in requests]
    engine = build_engine(config, pool=PageCounts(25, 16), executor=executor)
    server = RankReplay(engine, executor, arrivals)
    assert replay([server], of_one_server(run.steps), overlaps=overlaps) is None
