"""Which runs are repeats, which scenarios are compared, and their names in tables."""

from calibrate.cases import labels, repeats, same_load


def dumped(loaded):
    return loaded.scenario.model_dump(mode="json")


def test_repeats_are_runs_of_equal_scenarios(rebuilt):
    """In order of first appearance."""
    fcfs = "scheduler.schedule_policy=fcfs"
    runs = [rebuilt("a.jsonl"), rebuilt("b.jsonl", fcfs), rebuilt("c.jsonl")]
    assert [[run.name for run in group] for group in repeats(runs)] == [
        ["a.jsonl", "c.jsonl"],
        ["b.jsonl"],
    ]


def test_labels_tell_namesakes_apart_by_what_differs(scenario):
    """A scenario with a unique name gets no keys appended."""
    chosen = [
        scenario(),
        scenario("scheduler.schedule_policy=fcfs"),
        scenario("name=other"),
        scenario("workload.arrivals.rate_rps=5"),
    ]
    assert labels([dumped(loaded) for loaded in chosen]) == [
        "study (rate_rps=20.0, schedule_policy=lpm)",
        "study (rate_rps=20.0, schedule_policy=fcfs)",
        "other",
        "study (rate_rps=5.0, schedule_policy=lpm)",
    ]


def test_same_load_groups_settings_that_serve_the_same_traffic(scenario):
    """Loads with only one setting are left out."""
    chosen = [
        scenario(),
        scenario("workload.arrivals.rate_rps=5"),
        scenario("scheduler.schedule_policy=fcfs", "name=other"),
        scenario("seed=4"),
    ]
    assert same_load([dumped(loaded) for loaded in chosen]) == [[0, 2]]
