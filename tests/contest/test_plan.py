"""A contest's section is checked before anything runs; contestants share their traffic."""

import pytest

from sim.contest.plan import plan_contest
from sim.contest.suite import suite
from sim.core.errors import InputError
from sim.scenario.load import load_scenario_text


def test_contestants_have_the_same_traffic(planned):
    """With the same seed, whatever else they set; the load changes how fast requests come."""
    contest = planned()
    for traffic in contest.traffic:
        runs = {
            name: [contest.plan.vary(point.settings) for point in contest.points(name, traffic, 2)]
            for name in contest.settings
        }
        [first, *others] = [
            [(run.scenario.workload, run.scenario.seed, run.scenario.slo) for run in each]
            for each in runs.values()
        ]
        assert others == [first] * 2
        assert [seed for _, seed, _ in first] == [1, 2, 3]
    [own, _] = contest.traffic
    settings = contest.settings_of("lpm", own, 2.0)
    assert settings["workload.arrivals.rate_rps"] == 40
    assert settings["workload.num_requests"] == 40


@pytest.mark.parametrize(
    "kind",
    [
        "kind: sessions, turns: N, user_tokens: N",
        "kind: agents, tasks: N, calls: N, task_tokens: N, tool_tokens: N, tool_s: N",
    ],
)
def test_sessions_begin_for_as_long_at_each_load(planned, kind):
    """Else, at twice the load, all of them would soon wait for answers and none would begin.

    So do those that are mixed with other traffic, which then comes for as long, too.
    """
    sessions = (
        f"{{{kind}, sessions: 30, arrivals: {{kind: poisson, rate_rps: 3}},"
        " output_tokens: N, think_s: N}"
    ).replace("N", "{kind: constant, value: 9}")
    single = (
        "{kind: synthetic, num_requests: 20, arrivals: {kind: poisson, rate_rps: 6},"
        " prompt_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant, value: 9}}"
    )
    mixed = (
        f"{{kind: mix, parts: [{{tenant: a, workload: {sessions}}},"
        f" {{tenant: b, workload: {single}}}]}}"
    )
    contest = planned(
        f"contest.traffic=[{{name: a, workload: {sessions}}}, {{name: b, workload: {mixed}}}]"
    )
    alone, both = (contest.traffic_settings("lpm", each, 2.0) for each in contest.traffic)
    assert (alone["workload.arrivals.rate_rps"], alone["workload.sessions"]) == (6, 60)
    assert both["workload.parts.0.workload.sessions"] == 60
    assert both["workload.parts.1.workload.num_requests"] == 40


def test_traffic_sets_the_pool_of_every_family(planned):
    contest = planned()
    [_, mine] = contest.traffic
    pools = {
        name: contest.plan.vary(contest.points(name, mine, 1.0)[0].settings).scenario.scheduler
        for name in contest.settings
    }
    assert pools["fcfs"].max_total_tokens == pools["lpm"].max_total_tokens == 2048
    assert pools["vllm"].num_gpu_blocks_override == 128


def test_without_traffic_all_that_ships_is_used(contest_text, planned):
    text = "\n".join(line for line in contest_text.splitlines() if "  traffic:" not in line)
    found = plan_contest(load_scenario_text(text))
    assert [traffic.name for traffic in found.traffic] == list(suite())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("contest.traffic=[own, chatt]", "traffic.1: unknown traffic 'chatt' (did you mean chat?"),
        ("contest.traffic=[own, own]", "traffic.1: own is given twice"),
        ("contest.reference=sjf", "reference sjf is not a contestant (fcfs, lpm, vllm)"),
        ("contest.curve=[lpm, fifo]", "curve fifo is not a contestant (fcfs, lpm, vllm)"),
        ("contest.loads=[1, 0.5]", "loads must be in ascending order, each once"),
        ("contest.seeds=[1, 1]", "seeds.1: 1 is given twice"),
        ("contest.seeds=0", "seeds"),
        ("slo={}", "min_slo_attainment: needs an slo section with a limit"),
        ("slo.ttft=5", "unknown key (did you mean ttft_ms?)"),
        ("contest.contestants.lpm={seed: 1}", "lpm.seed: cannot be set: it is the same for all"),
        ("contest.contestants.lpm={scheduler.schedule_polcy: lpm}", "did you mean"),
        ("contest.contestants.lpm={scheduler.schedule_policy: lpmm}", "did you mean lpm?"),
        ("contest.contestants.lpm={scheduler.schedule_policy: no_such:Policy}", "no_such"),
    ],
)
def test_bad_section_is_refused_in_one_line(planned, option, message):
    with pytest.raises(InputError) as refused:
        planned(option)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bad_contestant_is_named_with_its_line(contest_text):
    """The line is that of the file, not that of the first contestant with such a key."""
    text = contest_text.replace("schedule_policy: lpm}", "schedule_policy: lpmm}")
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "lpmm" in line)
    with pytest.raises(InputError, match=rf"^small.yaml:{number}: contestant lpm: "):
        plan_contest(load_scenario_text(text, name="small.yaml"))


def test_traffic_that_cannot_come_faster_is_refused(planned):
    burst = (
        "{kind: synthetic, num_requests: 3, arrivals: {kind: burst, size: 3, every_s: 0},"
        " prompt_tokens: {kind: constant, value: 9}, output_tokens: {kind: constant, value: 9}}"
    )
    option = f"contest.traffic=[own, {{name: once, workload: {burst}}}]"
    with pytest.raises(InputError, match="once: this traffic cannot come faster or more slowly"):
        planned(option)


def test_scenario_without_contest_is_refused(contest_text):
    text = contest_text[: contest_text.index("contest:")]
    with pytest.raises(InputError, match="has no contest section"):
        plan_contest(load_scenario_text(text, name="small.yaml"))
