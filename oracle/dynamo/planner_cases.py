"""Lets the planner of NVIDIA Dynamo decide random loads, and writes its decisions as test cases.

    pip download --no-deps ai-dynamo==1.6.1 && unzip ai_dynamo-1.6.1-py3-none-any.whl -d wheel
    python oracle/dynamo/planner_cases.py wheel > tests/des/autoscale/dynamo_cases.json

It loads `planner/core/load_scaling.py` alone: the package itself needs a compiled runtime. The
case has the tokens that each replica's requests need; the planner gets them as three sums.
"""

import json
import logging
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

_NUM_DRAWN, _MOST_ALIKE = 2_000, 24
_PACKAGES = ("dynamo", "dynamo.planner", "dynamo.planner.core", "dynamo.planner.config")


def load_scaling_class(wheel: Path) -> type:
    """The planner's class; its packages are stand-ins, so that their `__init__` is not run."""
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(wheel / name.replace(".", "/"))]
        sys.modules[name] = package
    from dynamo.planner.core.load_scaling import LoadScalingMixin

    return LoadScalingMixin


def draw(rng: random.Random) -> dict:
    """Loads of some replicas: light, about a threshold, exactly at one, or too heavy."""
    kv_tokens = rng.choice([1_000, 4_096, 100_000])
    top = rng.choice([0.05, 0.12, 0.35, 0.5, 0.62, 0.9, 1.3])
    loads = [int(kv_tokens * rng.random() * top) for _ in range(rng.choice([1, 2, 2, 3, 4, 8]))]
    if rng.random() < 0.2:
        loads[0] = int(kv_tokens * rng.choice([0.1, 0.4, 0.6, 1.0]))
    target = rng.choice(["throughput", "latency"])
    return {"target": target, "kv_tokens": kv_tokens, "wanted_tokens": loads}


def decide(mixin: type, case: dict, rng: random.Random) -> int:
    """How many replicas the planner wants."""
    stats = {}
    for number, total in enumerate(case["wanted_tokens"]):
        running = int(total * rng.random())
        preempted = int((total - running) * rng.random())
        queued = SimpleNamespace(
            sum_decode_kv_tokens=preempted, sum_prefill_tokens=total - running - preempted
        )
        scheduled = SimpleNamespace(sum_decode_kv_tokens=running)
        stats[f"w{number}", 0] = SimpleNamespace(
            scheduled_requests=scheduled, queued_requests=queued
        )
    planner = mixin()
    planner._config = SimpleNamespace(
        optimization_target=case["target"],
        min_endpoint=1,
        prefill_min_endpoint=None,
        decode_min_endpoint=None,
    )
    planner._capabilities = SimpleNamespace(decode=SimpleNamespace(max_kv_tokens=case["kv_tokens"]))
    planner._pending_startup = lambda _component: 0
    number = len(stats)
    desired = planner._agg_easy_decision(stats, number)
    return number if desired is None else desired


def main() -> None:
    logging.disable(logging.CRITICAL)
    mixin, rng = load_scaling_class(Path(sys.argv[1])), random.Random(1)
    kept, alike = [], {}
    for _ in range(_NUM_DRAWN):
        case = draw(rng)
        case["desired"] = decide(mixin, case, rng)
        kind = case["target"], case["desired"] - len(case["wanted_tokens"])
        alike[kind] = alike.get(kind, 0) + 1
        if alike[kind] <= _MOST_ALIKE:
            kept.append(case)
    print("[")
    print(",\n".join(json.dumps(case) for case in kept))
    print("]")


if __name__ == "__main__":
    main()
