"""Tiers below CPU memory in vLLM's `kv_connector_extra_config`, written and read back."""

from collections.abc import Mapping
from typing import Any

from sim.core.errors import shorten
from sim.vllm.section.tiers import BackPressure, SecondaryTierSection

_SPEC = "TieringOffloadingSpec"
_PRESSURE = "vllm.v1.kv_offload.tiering.backpressure"
_DETECTOR = f"{_PRESSURE}.EMABackpressureDetector"
_DROPS = f"{_PRESSURE}.DropStorePolicy"
# What each type needs besides, which no decision depends on. The shell puts in its variables.
_PLACES: dict[str, dict[str, Any]] = {
    "fs": {"root_dir": "$STORE"},
    "obj": {"store_config": {"bucket": "$BUCKET", "endpoint_override": "$ENDPOINT"}},
}


def tier_flags(tier: SecondaryTierSection) -> dict[str, Any]:
    """The keys for a tier; `in_shell` makes a flag of them."""
    given = tier.model_dump(exclude_defaults=True)
    config: dict[str, Any] = {"type": given.pop("type"), **_PLACES[tier.type], **given}
    if tier.type == "obj":
        config = {key: config[key] for key in config if not key.startswith("n_")}
    if tier.backpressure is not None:
        pressure: dict[str, Any] = {"backpressure_cls": _DETECTOR}
        if given["backpressure"].pop("policy", None) == "drop":
            pressure["policy_cls"] = _DROPS
        config["backpressure"] = pressure | given["backpressure"]
    return {"spec_name": _SPEC, "secondary_tiers": [config]}


def in_shell(text: str) -> str:
    """JSON in single quotes, in which the shell puts in the variables of `tier_flags`."""
    for name in ("$STORE", "$BUCKET", "$ENDPOINT"):
        text = text.replace(name, f"'\"{name}\"'")
    return f"'{text}'"


def take_tier(extra: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]] | None:
    """The section's keys for the tiers of `kv_connector_extra_config`; None: it has none."""
    tiers = extra.get("secondary_tiers")
    if extra.get("spec_name") != _SPEC or not isinstance(tiers, list) or not tiers:
        return None
    config = tiers[0] if isinstance(tiers[0], dict) else {}
    kind = config.get("type")
    if len(tiers) > 1 or kind not in _PLACES:
        shown = "several" if len(tiers) > 1 else f"type {shorten(str(kind))}"
        notes.append(f"--kv-transfer-config: secondary_tiers: {shown}: not simulated")
        return None
    found = {key: config[key] for key in SecondaryTierSection.model_fields if key in config}
    pressure = config.get("backpressure", extra.get("backpressure"))
    if isinstance(pressure, dict):
        common = extra.get("backpressure")
        pressure = {**(common if isinstance(common, dict) else {}), **pressure}
        found["backpressure"] = _pressure(pressure, notes)
    return [found]


def _pressure(config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    known = {key: config[key] for key in BackPressure.model_fields if key in config}
    if str(config.get("policy_cls", "")).endswith("DropStorePolicy"):
        known["policy"] = "drop"
    named = str(config.get("backpressure_cls", _DETECTOR))
    if named != _DETECTOR:
        notes.append(f"--kv-transfer-config: {shorten(named)} is simulated as {_DETECTOR}")
    return known
