"""The kinds of classes that a scenario can name: their start files, tests and scenarios."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

_BASE: Mapping[str, Any] = {
    "seed": 1,
    "latency": {
        "kind": "linear",
        "step_s": 0.005,
        "per_prefill_token_s": 4e-5,
        "per_decode_request_s": 5e-5,
        "per_context_token_s": 2e-8,
    },
    "workload": {
        "kind": "synthetic",
        "num_requests": 200,
        "arrivals": {"kind": "poisson", "rate_rps": 50},
        "prompt_tokens": {"kind": "uniform", "min": 20, "max": 300},
        "output_tokens": {"kind": "uniform", "min": 1, "max": 60},
        "prefixes": {
            "groups": 6,
            "tokens": {"kind": "constant", "value": 320},
            "share_probability": 0.8,
        },
    },
    "scheduler": {
        "family": "sglang",
        "schedule_policy": "lpm",
        "page_size": 16,
        "max_total_tokens": 8192,
        "max_running_requests": 16,
        "chunked_prefill_size": 512,
        "context_length": 4096,
    },
}
_TENANT = {
    **_BASE["workload"],
    "num_requests": 100,
    "arrivals": {"kind": "poisson", "rate_rps": 30},
}
_TENANTS = {
    "kind": "mix",
    "parts": [{"tenant": name, "workload": deepcopy(_TENANT)} for name in ("red", "blue", "green")],
}


class StartKind(NamedTuple):
    """One kind.

    Attributes:
        start: the module of the start file, in `sim.new.starts`.
        cls: the name of its class.
        does: what the class does, for the list of kinds.
        key: the key that names the class.
        suite: its contract suite.
        changes: sections of the scenario that differ from `_BASE`, besides the key.
    """

    start: str
    cls: str
    does: str
    key: str
    suite: str
    changes: Mapping[str, Any] = {}

    def scenario(self, module: str, cls: str) -> dict[str, Any]:
        """A small scenario that names the class."""
        data = deepcopy({"name": module, **_BASE, **self.changes})
        section, _, key = self.key.partition(".")
        name = f"{module}:{cls}"
        data[section] = {**data[section], key: name} if key else name
        return data


KINDS: Mapping[str, StartKind] = {
    kind.start: kind
    for kind in (
        StartKind(
            "policy", "ShortestPromptFirst", "orders the waiting queue",
            "scheduler.schedule_policy", "SchedulePolicyContract",
        ),
        StartKind(
            "fairness", "OldestFirst", "changes a policy's order, so that no request starves",
            "scheduler.fairness", "FairnessContract",
        ),
        StartKind(
            "admission", "FewPrompts", "selects the requests that a prefill pass considers",
            "scheduler.admission", "AdmissionContract",
        ),
        StartKind(
            "eviction", "FarEndsFirst", "says what the prefix cache evicts first",
            "scheduler.radix_eviction_policy", "EvictionContract",
        ),
        StartKind(
            "router", "TenantHome", "chooses the replica of each request",
            "router", "RouterContract", {"replicas": 3, "workload": _TENANTS},
        ),
        StartKind("latency", "ReadsAndComputes", "says how long a step takes", "latency",
             "LatencyModelContract"),
        StartKind("workload", "Bursts", "makes the traffic", "workload", "WorkloadContract"),
        StartKind(
            "family", "Slots", "schedules: a whole server's rules",
            "scheduler.family", "SchedulerContract",
            {"scheduler": {"family": "", "max_total_tokens": 8192, "max_running_requests": 16}},
        ),
    )
}  # fmt: skip
