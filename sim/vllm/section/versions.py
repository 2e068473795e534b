"""What versions of vLLM do not have, or what of them is not simulated."""

from typing import TYPE_CHECKING

from sim.validation import KeysError, launch_keys
from sim.vllm.version_rules import VERSIONS

if TYPE_CHECKING:
    from sim.vllm.section.scheduler import VllmSection

# The newest first.
_ORDER = list(VERSIONS)


def check_version(section: "VllmSection") -> None:
    """Refuse settings that the version does not have, or with which it is not simulated.

    Raises KeysError: with the keys.
    """
    rules = VERSIONS[section.version]
    if section.scheduler_reserve_full_isl and not rules.reserves_full_isl:
        raise KeysError(
            f"vLLM {section.version} has no scheduler_reserve_full_isl",
            "scheduler_reserve_full_isl",
            "version",
        )
    for key, since in launch_keys(type(section)).since.items():
        is_changed = getattr(section, key) != type(section).model_fields[key].default
        if is_changed and _ORDER.index(section.version) > _ORDER.index(since):
            raise KeysError(f"vLLM {section.version} has no {key}", key, "version")
    if not rules.is_known_whole and section.scheduling_policy == "priority":
        raise KeysError(
            f"scheduling_policy priority of vLLM {section.version} is not simulated",
            "scheduling_policy",
            "version",
        )
    if not (rules.is_known_whole or section.enable_chunked_prefill):
        raise KeysError(
            f"enable_chunked_prefill false of vLLM {section.version} is not simulated",
            "enable_chunked_prefill",
            "version",
        )
