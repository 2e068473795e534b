"""An installed SGLang that decides in place of the rules here (docs/how-to/engine.md)."""

from dataclasses import replace
from pathlib import Path

from sim.installed.environment import engine_in
from sim.sglang.config import SchedulerConfig
from sim.user.objects import FailAt

# Settings of what no engine is asked about, or what no SGLang has.
_NOT_ASKED = (
    "host_cache", "speculative_algorithm", "static_batching", "fairness",
    "admission", "decode_max_requests", "decode_first", "default_priority_value",
)  # fmt: skip
_KEYS = {
    "static_batching": "batching",
}


def with_engine(
    folder: str | None, config: SchedulerConfig, base_dir: Path, fail_at: FailAt
) -> SchedulerConfig:
    """The settings of a server whose steps the engine in `folder` decides; None: there is none.

    Raises InputError: there is no engine, or it is not asked about such servers.
    """
    if folder is None:
        return config
    refused = [_KEYS.get(name, name) for name in _NOT_ASKED if getattr(config, name)]
    refused += [f"a {key} of yours" for key, rule in config.user._asdict().items() if rule]
    if config.micro_batches > 1:
        refused.append("latency.pp above 1")
    if config.scheduler_recv_interval > 1:
        refused.append("scheduler_recv_interval above 1")
    if config.radix_eviction_policy == "hit-benefit" or config.schedule_policy == "sjf":
        refused.append("a policy that SGLang does not have")
    return replace(config, engine=engine_in("sglang", base_dir / folder, fail_at, refused))
