"""The section `scheduler` for an imported run, in the words of the server's family."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic import ValidationError

from sim.sglang.section.scheduler import SchedulerSection
from sim.vllm.section import VllmSection
from sim.workload.results.model import ImportedRequest, ServerFacts

# More than servers keep free of context and pool (docs/sglang.md, rule 1).
_SPARE = 16
_SGLANG_POOL = (
    "PLACEHOLDER: max_total_tokens has room for everything at once. Give your server's: SGLang logs"
    " it as max_total_num_tokens."
)
_VLLM_POOL = (
    "PLACEHOLDER: num_gpu_blocks_override has room for everything at once. Give your server's: vLLM"
    " logs its KV cache size in tokens; a block is block_size of them, and one more is never used."
)


class ImportedSection(NamedTuple):
    """A section that is in order, and what a reader of it should know."""

    settings: dict[str, Any]
    hints: list[str]


def scheduler_section(facts: ServerFacts, requests: Sequence[ImportedRequest]) -> ImportedSection:
    """What the results tell of the scheduler, with a pool that holds all requests at once."""
    family: dict[str, Any] = {"family": "vllm"} if facts.engine == "vllm" else {}
    settings, refused = _accepted(family, facts.scheduler)
    hints = [f"Told, but not simulated: {pairs(refused)}."] if refused else []
    if family:
        if "num_gpu_blocks_override" not in settings:
            settings["num_gpu_blocks_override"] = _num_blocks(settings, requests)
            hints.append(_VLLM_POOL)
        return ImportedSection(settings, hints)
    sizes = _sizes(requests)
    page_size = int(settings.get("page_size", 1))
    if "max_total_tokens" not in settings:
        settings["max_total_tokens"] = sum(sizes) + (2 * page_size + _SPARE) * len(sizes)
        hints.append(_SGLANG_POOL)
    longest = max(sizes) + _SPARE
    if longest > int(settings.get("context_length", SchedulerSection().context_length)):
        settings["context_length"] = longest
    return ImportedSection(settings, hints)


def differing(facts: ServerFacts, settings: Mapping[str, object]) -> dict[str, object]:
    """What the results tell otherwise than these settings, of the same family."""
    if (facts.engine == "vllm") != (settings.get("family") == "vllm"):
        return {}
    return {
        key: value
        for key, value in facts.scheduler.items()
        if key in settings and settings[key] != value
    }


def pairs(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def _accepted(
    family: Mapping[str, Any], told: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, object]]:
    """The settings a scenario can have, and the others."""
    section = VllmSection if family else SchedulerSection
    accepted: dict[str, Any] = dict(family)
    refused: dict[str, object] = {}
    for key, value in told.items():
        plain = float(value) if isinstance(value, Decimal) else value
        try:
            section.model_validate({**accepted, key: plain})
        except ValidationError:
            refused[key] = value
        else:
            accepted[key] = plain
    return accepted, refused


def _sizes(requests: Sequence[ImportedRequest]) -> list[int]:
    """Tokens of each request with as much output as it may have."""
    return [
        (request.prompt_tokens or 0) + max(request.output_tokens or 0, request.max_new_tokens or 0)
        for request in requests
        if request.has_lengths
    ]


def _num_blocks(settings: Mapping[str, Any], requests: Sequence[ImportedRequest]) -> int:
    block_size = int(settings.get("block_size", VllmSection(family="vllm").block_size))
    return sum(-(-(size + _SPARE) // block_size) for size in _sizes(requests)) + 1
