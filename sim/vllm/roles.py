"""What a role makes of the settings: servers that only prefill, or only decode."""

from dataclasses import replace

from sim.core.errors import InputError
from sim.engine.partner import BOTH, DECODE
from sim.family.section import ServerSection
from sim.vllm.config import VllmConfig


def with_role(section: ServerSection, config: VllmConfig, role: str) -> VllmConfig:
    """The settings of a server of this role.

    Raises:
        InputError: a setting is not simulated on such a server.
    """
    if role == BOTH:
        return config
    if not config.rules.hands_over:
        reason = f"vLLM {config.version} is not simulated on servers of role {role}"
        raise InputError(reason, key=("scheduler", "version"))
    if config.scheduling_policy == "priority" and not config.rules.holders_first and role == DECODE:
        reason = f"priority: decode servers of vLLM {config.version} can wait for ever with it"
        raise InputError(reason, key=("scheduler", "scheduling_policy"))
    for key in ("speculative_config", "kv_cache_groups"):
        if getattr(section, key) is not None:
            reason = f"is not simulated on servers of role {role}"
            raise InputError(reason, key=("scheduler", key))
    return replace(config, role=role)
