"""Every shipped policy keeps the contract of its seam, and is the same with fast-forward."""

from importlib import import_module

import pytest

from sim.scenario.load import load_scenario
from sim.scenario.strict_yaml import yaml_text
from sim.sglang.config import SchedulerConfig
from sim.sglang.user_rules import ADMISSION as ADMISSION_KIND
from sim.sglang.user_rules import POLICY as POLICY_KIND
from sim.sglang.user_rules import GuardedAdmission, GuardedPolicy
from sim.sweep.plan import plan_sweep
from sim.testing.contracts import AdmissionContract, SchedulePolicyContract
from sim.testing.user_classes import simulate_both_ways
from sim.user.objects import LoadedClass, UserClass, user_classes
from tests.policies.conftest import MODULES, SHIPPED

POLICIES = [
    "hrrn:HighestResponseRatio",
    "shortest_prompt:ShortestPromptAging",
    "deadlines:EarliestDeadlineFirst",
    "deadlines:LeastSlack",
    "vtc:VirtualTokenCounter",
    "drr:DeficitRoundRobin",
    "dlpm:DeficitLongestPrefixMatch",
    "open_sessions:OpenSessions",
    "tool_calls:ProgramsInOrder",
    "tool_calls:InferCept",
    "tool_calls:Continuum",
]
ADMISSION = "past_future:PastFuture"


def test_every_module_has_its_test():
    assert {name.partition(":")[0] for name in (*POLICIES, ADMISSION)} == MODULES


def maker(name, kind, guard):
    """Makes a shipped class's object in the guard that a simulation puts around it."""
    module, _, cls = name.partition(":")
    loaded = LoadedClass(getattr(import_module(module), cls), UserClass(kind=name), kind)
    return lambda: guard(loaded.make(SchedulerConfig()))


class TestPolicies(SchedulePolicyContract):
    """All policies."""

    @pytest.fixture(params=POLICIES)
    def make_policy(self, request):
        return maker(request.param, POLICY_KIND, GuardedPolicy)


class TestAdmissions(AdmissionContract):
    """The only one."""

    @pytest.fixture
    def make_admission(self):
        return maker(ADMISSION, ADMISSION_KIND, GuardedAdmission)


def tenant(name, rate_rps):
    """Requests of a tenant that share prefixes with each other and with the other tenants."""
    return {
        "tenant": name,
        "workload": {
            "kind": "synthetic",
            "num_requests": 70,
            "arrivals": {"kind": "poisson", "rate_rps": rate_rps},
            "prompt_tokens": {"kind": "lognormal", "mean": 60, "cv": 1.5, "max": 600},
            "output_tokens": {"kind": "uniform", "min": 1, "max": 150},
            "predicted_output": {"kind": "lognormal", "sigma": 0.5},
            "prefixes": {
                "groups": 4,
                "tokens": {"kind": "constant", "value": 96},
                "share_probability": 0.7,
            },
        },
    }


SCENARIO = {
    "name": "both-ways",
    "latency": {
        "kind": "linear",
        "step_s": 0.005,
        "per_prefill_token_s": 4e-5,
        "per_decode_request_s": 5e-5,
        "per_context_token_s": 2e-8,
    },
    "workload": {"kind": "mix", "parts": [tenant("red", 60), tenant("blue", 20)]},
    "scheduler": {
        "page_size": 16,
        "max_total_tokens": 1536,
        "max_running_requests": 12,
        "chunked_prefill_size": 256,
        "schedule_conservativeness": 0.3,
    },
}


@pytest.mark.parametrize("name", [*POLICIES, ADMISSION])
def test_fast_forward_changes_no_decision(name, tmp_path):
    """With tenants, shared prefixes, chunks and retractions, every request is served."""
    key = "admission" if name == ADMISSION else "schedule_policy"
    scheduler = {**SCENARIO["scheduler"], key: name}
    path = tmp_path / "both-ways.yaml"
    path.write_text(yaml_text({**SCENARIO, "scheduler": scheduler}), encoding="utf-8")
    log = simulate_both_ways(path)
    assert set(log.requests.status) == {"finished"}
    assert sum(log.requests.retractions) > 0


def test_every_shipped_class_is_run_by_a_shipped_scenario():
    """And no other class is, so that a copied folder is complete."""
    used = set()
    for path in SHIPPED.glob("*.yaml"):
        plan = plan_sweep(load_scenario(path))
        for point in plan.points:
            used |= {name for _, name in user_classes(plan.vary(point.settings).scenario)}
    assert used == {*POLICIES, ADMISSION}
