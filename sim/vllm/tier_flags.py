"""Tiers below CPU memory in vLLM's `kv_connector_extra_config`, written and read back."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sim.core.errors import shorten
from sim.vllm.section.tiers import BackPressure, SecondaryTierSection

_SPEC = "TieringOffloadingSpec"
_PRESSURE = "vllm.v1.kv_offload.tiering.backpressure"
_DETECTOR = f"{_PRESSURE}.EMABackpressureDetector"
_DROPS = f"{_PRESSURE}.DropStorePolicy"
# What each type needs besides, which no decision depends on. The shell puts in its variables, of
# further tiers with a number.
_PLACES: dict[str, dict[str, Any]] = {
    "fs": {"root_dir": "$STORE"},
    "obj": {"store_config": {"bucket": "$BUCKET", "endpoint_override": "$ENDPOINT"}},
}
# How fast further tiers of a launch command are, is not in it.
_STORE = "nvme"


def tier_flags(tiers: Sequence[SecondaryTierSection]) -> dict[str, Any]:
    """The keys for tiers; `in_shell` makes a flag of them."""
    if not tiers:
        return {}
    configs = [_config(tier, str(i) if i > 1 else "") for i, tier in enumerate(tiers, 1)]
    return {"spec_name": _SPEC, "secondary_tiers": configs}


def _config(tier: SecondaryTierSection, number: str) -> dict[str, Any]:
    given = tier.model_dump(exclude_defaults=True, exclude={"store"})
    place = json.loads(re.sub(r"\$\w+", rf"\g<0>{number}", json.dumps(_PLACES[tier.type])))
    config: dict[str, Any] = {"type": given.pop("type"), **place, **given}
    if tier.type == "obj":
        config = {key: config[key] for key in config if not key.startswith("n_")}
    if tier.backpressure is not None:
        pressure: dict[str, Any] = {"backpressure_cls": _DETECTOR}
        if given["backpressure"].pop("policy", None) == "drop":
            pressure["policy_cls"] = _DROPS
        config["backpressure"] = pressure | given["backpressure"]
    return config


def in_shell(text: str) -> str:
    """JSON in single quotes, in which the shell puts in the variables of `tier_flags`."""
    quoted = re.sub(r"\$(STORE|BUCKET|ENDPOINT)\d*", "'\"\\g<0>\"'", text)
    return f"'{quoted}'"


def take_tiers(extra: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]] | None:
    """The section's keys for the tiers of `kv_connector_extra_config`; None: it has none."""
    tiers = extra.get("secondary_tiers")
    if extra.get("spec_name") != _SPEC or not isinstance(tiers, list):
        return None
    found: list[dict[str, Any]] = []
    for config in tiers:
        kind = config.get("type") if isinstance(config, dict) else None
        if kind in _PLACES:
            found.append(_keys_of(config, extra, notes))
            continue
        shown = f"type {shorten(str(kind))}"
        notes.append(f"--kv-transfer-config: secondary_tiers: {shown}: not simulated")
    if len(found) > 1:
        notes.append(f"further secondary_tiers: say how fast they are in place of store: {_STORE}")
    return [found[0], *({**tier, "store": _STORE} for tier in found[1:])] if found else None


def _keys_of(
    config: Mapping[str, Any], extra: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    known = SecondaryTierSection.model_fields.keys() - {"store"}
    found = {key: value for key, value in config.items() if key in known}
    pressure = config.get("backpressure", extra.get("backpressure"))
    if isinstance(pressure, dict):
        common = extra.get("backpressure")
        pressure = {**(common if isinstance(common, dict) else {}), **pressure}
        found["backpressure"] = _pressure(pressure, notes)
    return found


def _pressure(config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    known = {key: config[key] for key in BackPressure.model_fields if key in config}
    if str(config.get("policy_cls", "")).endswith("DropStorePolicy"):
        known["policy"] = "drop"
    named = str(config.get("backpressure_cls", _DETECTOR))
    if named != _DETECTOR:
        notes.append(f"--kv-transfer-config: {shorten(named)} is simulated as {_DETECTOR}")
    return known
