"""Policies that share a server among tenants: what each has been given, pass by pass."""

import sys
from itertools import combinations

import numpy as np
import pytest

from bench.policies import Run, service_gap
from sim.scenario.strict_yaml import yaml_text
from tests.policies.conftest import SHIPPED

POOL_TOKENS = 2048
LONGEST_PROMPT = 600
# The paper's bound on the difference of two backlogged tenants, with weights 1 and 2.
BOUND = 2 * max(LONGEST_PROMPT, 2 * POOL_TOKENS)
# A policy that notes, in each pass, the service that each tenant's requests have been given. It
# asks the requests themselves, and not the policy's counters.
WATCHED = """
from collections import Counter
from sim.sglang.policies.policy import Fcfs
from {module} import {cls}

KNOWN, NOTES = dict(), []

class Watched({cls}):
    def order(self, waiting, view):
        KNOWN.update((request.rid, request) for request in waiting)
        given = Counter()
        for request in KNOWN.values():
            admitted = request.scheduled_ns >= 0
            tenant = request.spec.tenant
            given[tenant] += admitted * request.prompt_len + 2 * request.num_generated
        NOTES.append((set(request.spec.tenant for request in waiting), given))
        return super().order(waiting, view)
"""


def tenant(name, num_requests, prompt, output):
    return {
        "tenant": name,
        "workload": {
            "kind": "synthetic",
            "num_requests": num_requests,
            "arrivals": {"kind": "poisson", "rate_rps": num_requests / 4},
            "prompt_tokens": {"kind": "uniform", "min": 10, "max": prompt},
            "output_tokens": {"kind": "uniform", "min": 5, "max": output},
        },
    }


SCENARIO = {
    "name": "watched",
    "latency": {
        "kind": "linear",
        "step_s": 0.005,
        "per_prefill_token_s": 4e-5,
        "per_decode_request_s": 5e-5,
        "per_context_token_s": 2e-8,
    },
    "workload": {
        "kind": "mix",
        "parts": [
            tenant("many", 400, 200, 60),
            tenant("long", 100, LONGEST_PROMPT, 20),
            tenant("chatty", 150, 30, 200),
        ],
    },
    "scheduler": {"max_total_tokens": POOL_TOKENS, "disable_radix_cache": True},
}


@pytest.fixture
def service(tmp_path, run):
    """The service of each tenant in each pass in which all of them wait; shape [passes, 3]."""

    def served(name, **settings):
        module, _, cls = name.partition(":")
        text = WATCHED.format(module=module, cls=cls)
        (tmp_path / "watched.py").write_text(text, encoding="utf-8")
        policy = {"kind": "watched:Watched", **settings} if settings else "watched:Watched"
        scheduler = {**SCENARIO["scheduler"], "schedule_policy": policy}
        path = tmp_path / "watched.yaml"
        path.write_text(yaml_text({**SCENARIO, "scheduler": scheduler}), encoding="utf-8")
        run(path)
        notes = sys.modules.pop("watched").NOTES
        tenants = [part["tenant"] for part in SCENARIO["workload"]["parts"]]
        backlogged = [[given[t] for t in tenants] for waits, given in notes if len(waits) == 3]
        assert len(backlogged) > 100
        return np.array(backlogged)

    return served


def largest_difference(service):
    """Of the service of two tenants between any two passes."""
    gaps = [service[:, one] - service[:, other] for one, other in combinations(range(3), 2)]
    return max(np.ptp(gap) for gap in gaps)


def test_vtc_difference_of_backlogged_tenants_keeps_the_papers_bound(service):
    """And that of first come, first served does not."""
    assert largest_difference(service("vtc:VirtualTokenCounter")) <= BOUND
    assert largest_difference(service("sim.sglang.policies.policy:Fcfs")) > 2 * BOUND


@pytest.mark.parametrize(
    ("name", "settings"),
    [("vtc:VirtualTokenCounter", {}), ("drr:DeficitRoundRobin", {"quantum_tokens": 1000})],
)
def test_service_of_backlogged_tenants_is_as_their_weights(service, name, settings):
    """Also if they send requests of other sizes."""
    for weights in ({}, {"many": 2, "chatty": 0.5}):
        given = service(name, weights=weights, **settings)
        shares = (given[-1] - given[0]) / [weights.get("many", 1), 1, weights.get("chatty", 1)]
        assert shares == pytest.approx([shares.mean()] * 3, rel=0.06)


def test_dlpm_difference_of_backlogged_tenants_is_bounded_by_its_quantum(service):
    """A tenant's credit is between a quantum and minus the most that it can owe at once."""
    given = service("dlpm:DeficitLongestPrefixMatch", quantum_tokens=3000)
    assert largest_difference(given) <= BOUND + 2 * 3000


def test_dlpm_finds_nearly_as_much_as_lpm_and_is_fairer(run):
    """Against the same order without credits, which a quantum without end is; and against VTC."""
    fewer = [f"workload.parts.{i}.workload.num_requests={n}" for i, n in enumerate((600, 150, 150))]
    hits, gaps = [], []
    for policy in (
        "vtc:VirtualTokenCounter",
        "{kind: 'dlpm:DeficitLongestPrefixMatch', quantum_tokens: 2000}",
        "{kind: 'dlpm:DeficitLongestPrefixMatch', quantum_tokens: 1000000000}",
    ):
        override = f"scheduler.schedule_policy={policy}"
        log, summary = run(SHIPPED / "shared-prefixes.yaml", override, *fewer)
        hits.append(summary["cache_hit_rate_pct"])
        gaps.append(service_gap(15, 1)(Run(summary, log)))
    assert hits[0] + 4 < hits[2] - 4 < hits[1]
    assert gaps[1] < 0.5 * gaps[2]


def test_drr_larger_quanta_are_longer_turns(service):
    """The difference between tenants grows by about the quantum."""
    short = largest_difference(service("drr:DeficitRoundRobin", quantum_tokens=100))
    long = largest_difference(service("drr:DeficitRoundRobin", quantum_tokens=30_000))
    assert long > short + 15_000


def test_vtc_tenant_that_comes_back_has_saved_nothing_up(make_request, order, vtc):
    """It starts at the lowest counter of those that wait."""
    vtc.counters = {"busy": 500, "idle": 10}
    waiting = [make_request(f"busy-{i}", arrival_ms=i, tenant="busy", prompt=100) for i in range(3)]
    order(vtc, waiting)
    waiting += [make_request(f"idle-{i}", arrival_ms=9, tenant="idle", prompt=60) for i in range(3)]
    assert order(vtc, waiting) == ["busy-0", "idle-0", "idle-1", "busy-1", "idle-2", "busy-2"]


def test_vtc_if_nobody_waits_it_starts_where_the_last_one_left(make_request, order, vtc):
    waiting = [make_request("first", tenant="busy", prompt=100)]
    order(vtc, waiting)
    waiting[0].scheduled_ns, waiting[0].num_generated = 0, 3
    order(vtc, [make_request("next", tenant="other")])
    assert vtc.counters == {"busy": 100 + 2 * 3, "other": 106}


@pytest.fixture
def vtc():
    from vtc import VirtualTokenCounter  # noqa: PLC0415

    return VirtualTokenCounter(None)


@pytest.mark.parametrize(
    ("name", "policy", "ttft_s", "rate"),
    [
        ("two-tenants", "vtc:VirtualTokenCounter", {"small": 124.5, "large": 353.4}, 893),
        ("eight-tenants", "vtc:VirtualTokenCounter", {"slow-1": 150.8, "fast-1": 295.2}, 875),
        ("eight-tenants", "fcfs", {"slow-1": 257.0, "fast-1": 255.0}, 875),
    ],
)
def test_tenants_are_served_as_the_authors_measured(run, name, policy, ttft_s, rate):
    """Mean TTFT, and prompt and output tokens a second; to those of eight nothing was fitted."""
    _, summary = run(SHIPPED / f"{name}.yaml", f"scheduler.schedule_policy={policy}")
    for tenant, seconds in ttft_s.items():
        assert summary["tenants"][tenant]["mean_ttft_ms"] / 1e3 == pytest.approx(seconds, rel=0.07)
    assert summary["total_throughput"] == pytest.approx(rate, rel=0.04)
