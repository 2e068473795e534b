"""Routers through the command line: named in a file, in an option, and in a sweep."""

import json
from pathlib import Path

import pytest

from sim.des.routers.table import ROUTERS
from sim.scenario.load import load_scenario
from sim.sweep.plan import plan_sweep

SESSIONS = f"""\
workload:
  kind: sessions
  sessions: 12
  arrivals: {{kind: poisson, rate_rps: 20}}
  turns: {{kind: uniform, min: 1, max: 5}}
  user_tokens: {{kind: geometric, mean: 100}}
  output_tokens: {{kind: geometric, mean: 20}}
  think_s: {{kind: constant, value: 0}}
scheduler: {{max_total_tokens: 4096}}
replicas: 3
sweep: {{router: [{", ".join(ROUTERS)}]}}
"""
THREE = ("--set", "replicas=3")


def replicas_of(simulate, scenario, *options):
    """Where each request went."""
    ended = simulate("run", scenario, *THREE, *options, "--requests", "r.csv")
    assert ended.code == 0
    header, *rows = Path("r.csv").read_text(encoding="utf-8").splitlines()
    place = header.split(",").index("replica")
    return [row.split(",")[place] for row in rows]


def test_run_router_by_name_is_the_router_of_that_kind(simulate, scenario):
    """A name is short for a section with nothing but a kind; routers choose differently."""
    by_name = {kind: replicas_of(simulate, scenario, "--set", f"router={kind}") for kind in ROUTERS}
    for kind, replicas in by_name.items():
        assert set(replicas) == {"0", "1", "2"}
        assert replicas_of(simulate, scenario, "--set", f"router.kind={kind}") == replicas
    assert by_name["round-robin"] == replicas_of(simulate, scenario)
    # No request has a session here.
    assert by_name["session-sticky"] == by_name["least-loaded"]
    assert len({tuple(replicas) for replicas in by_name.values()}) == len(ROUTERS) - 1


def test_run_router_with_parameters_uses_them(simulate, scenario_with):
    """From the file's section, changed by options."""
    path = scenario_with("router: {kind: prefix-aware, cache_threshold: 0.1}\n")
    low = replicas_of(simulate, path)
    assert replicas_of(simulate, path, "--set", "router.cache_threshold=1.0") != low


@pytest.mark.parametrize(
    "other",
    ["router.kind=prefix-aware", "router={kind: prefix-aware, cache_threshold: 0.3}"],
)
def test_router_with_all_defaults_is_the_same_scenario_as_its_name(scenario, other):
    """One hash and one spelling, so that a sweep's results are found again."""
    one, two = (load_scenario(scenario, [change]) for change in ("router=prefix-aware", other))
    assert one.content_hash == two.content_hash
    assert two.scenario.model_dump(mode="json")["router"] == "prefix-aware"
    changed = load_scenario(scenario, ["router={kind: prefix-aware, cache_threshold: 0.31}"])
    assert changed.content_hash != one.content_hash


@pytest.mark.parametrize("key", ["router", "router.kind"])
def test_sweep_over_routers_has_a_point_for_each(scenario_with, key):
    """By name or by kind; a section with parameters is a value too."""
    values = [
        *ROUTERS,
        *([{"kind": "prefix-aware", "block_tokens": 64}] if key == "router" else []),
    ]
    plan = plan_sweep(load_scenario(scenario_with(f"sweep:\n  {key}: {json.dumps(values)}\n")))
    sections = [plan.vary(point.settings).scenario.router for point in plan.points]
    assert [section.kind for section in sections][: len(ROUTERS)] == list(ROUTERS)
    assert [section.block_tokens for section in sections[len(ROUTERS) :]] in ([], [64])
    assert len({point.content_hash for point in plan.points}) == len(values)


def test_sweep_over_routers_is_the_same_under_any_hash_seed(simulate, inline, python, scenario):
    """Conversations of clients who wait for their answers, on three replicas."""
    head, _, _ = Path(scenario).read_text(encoding="utf-8").partition("workload:")
    Path("s.yaml").write_text(head + SESSIONS, encoding="utf-8")
    assert simulate("sweep", "s.yaml", "--out", "here").code == 0
    sweep = ("-m", "sim", "sweep", "s.yaml", "--jobs", "1", "--out", "there")
    assert python(*sweep).code == 0
    here, there = (Path(place, "results.json").read_bytes() for place in ("here", "there"))
    assert here == there
    points = json.loads(here)["points"]
    assert len({point["mean_ttft_ms"] for point in points}) == len(ROUTERS)
