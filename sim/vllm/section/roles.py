"""What a role makes of the settings: servers that only prefill, or only decode."""

from dataclasses import replace

from sim.core.errors import InputError
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.family.section import ServerSection
from sim.installed.environment import not_asked
from sim.vllm.config import VllmConfig
from sim.vllm.scheduler.step_limits import EAGLE_METHODS
from sim.vllm.section.groups import refused_chunks
from sim.vllm.version_rules import VERSIONS

_NIXL = "distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py"


def with_role(section: ServerSection, config: VllmConfig, role: str) -> VllmConfig:
    """The settings of a server of this role.

    Raises InputError: a setting is not simulated on such a server.
    """
    if role == BOTH:
        return config
    if config.engine is not None:
        raise not_asked(f"role {role}")
    if not config.rules.hands_over:
        reason = f"vLLM {config.version} is not simulated on servers of role {role}"
        raise InputError(reason, key=("scheduler", "version"))
    if config.scheduling_policy == "priority" and not config.rules.holders_first and role == DECODE:
        reason = f"priority: decode servers of vLLM {config.version} can wait for ever with it"
        raise InputError(reason, key=("scheduler", "scheduling_policy"))
    if not config.rules.hands_over_parts:
        _check_old(section, config, role)
    _check_groups(section, config)
    return replace(config, role=role)


def refuses_stages(version: str, role: str) -> str | None:
    """Why vLLM has no pipeline stages on servers of a role; None: its reason is not known."""
    if not VERSIONS[version].hands_over_parts:
        return None
    if role == PREFILL:
        return (
            "above 1: the NIXL connector of vLLM's decode server fetches nothing from stages"
            f" ({_NIXL}: _validate_remote_agent_handshake, number of KV layers)"
        )
    return f"vLLM's NIXL connector refuses above 1 with kv_consumer ({_NIXL}: __init__)"


def _check_old(section: ServerSection, config: VllmConfig, role: str) -> None:
    """Refuse what servers of version 0.19.0 with a KV connector do not have, or do otherwise."""
    if config.kv_cache_groups:
        reason = (
            f"vLLM {config.version} turns groups of layers off with a KV connector"
            " (disable_hybrid_kv_cache_manager, config/vllm.py)"
        )
        raise InputError(reason, key=("scheduler", "kv_cache_groups"))
    if section.drafts is not None:
        # The version runs them. What it decides then was never compared with its own classes.
        reason = f"of vLLM {config.version} is not simulated on servers of role {role}"
        raise InputError(reason, key=("scheduler", "speculative_config"))


def _check_groups(section: ServerSection, config: VllmConfig) -> None:
    """Refuse groups of layers that do not go with drafts where a connector turns hashes ahead off.

    A server with a KV connector leaves out the last cached block for an EAGLE drafter, in all
    versions (`num_hash_lookahead_tokens` of config/vllm.py).
    """
    drafts, groups = section.drafts, config.kv_cache_groups
    if drafts is None or drafts.method not in EAGLE_METHODS or not config.enable_prefix_caching:
        return
    reason = refused_chunks(groups, drafts.method)
    if reason is not None:
        raise InputError(reason, key=("scheduler", "kv_cache_groups"))
