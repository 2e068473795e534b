"""What versions of vLLM do not have, or what of them is not simulated."""

from typing import Protocol

from sim.validation import KeysError, StrictModel, launch_keys
from sim.vllm.version_rules import VERSIONS

# The newest first.
_ORDER = list(VERSIONS)


class VersionedKeys(Protocol):
    """The keys of a scheduler that are looked at here by name."""

    @property
    def version(self) -> str: ...
    @property
    def scheduling_policy(self) -> str: ...
    @property
    def enable_chunked_prefill(self) -> bool: ...
    @property
    def scheduler_reserve_full_isl(self) -> bool | None: ...


def check_version(section: VersionedKeys, model: type[StrictModel]) -> None:
    """Refuse settings that the version does not have, or with which it is not simulated.

    `model`: the section's type.

    Raises KeysError: with the keys.
    """
    rules = VERSIONS[section.version]
    if section.scheduler_reserve_full_isl and not rules.reserves_full_isl:
        raise KeysError(
            f"vLLM {section.version} has no scheduler_reserve_full_isl",
            "scheduler_reserve_full_isl",
            "version",
        )
    for key, since in launch_keys(model).since.items():
        is_changed = getattr(section, key) != model.model_fields[key].default
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
