"""Makes the section `scheduler` of a scenario from a measured run of a vLLM server."""

from collections.abc import Mapping, Sequence

from sim.family.section import ImportedSection, accepted_settings
from sim.vllm.section.scheduler import VllmSection

# A safety margin: tokens of room for each request beyond its prompt and output.
_SPARE = 16
_POOL_HINT = (
    "PLACEHOLDER: num_gpu_blocks_override has room for all requests at once. Give your server's"
    " number of blocks: vLLM logs its KV cache size in tokens; divide that by block_size."
)


def vllm_section(known_settings: Mapping[str, object], sizes: Sequence[int]) -> ImportedSection:
    """See `Family.imported_section`."""
    settings, hints = accepted_settings(VllmSection, {"family": "vllm"}, known_settings)
    if "num_gpu_blocks_override" not in settings:
        block_size = int(settings.get("block_size", VllmSection(family="vllm").block_size))
        num_blocks = sum(-(-(size + _SPARE) // block_size) for size in sizes)
        settings["num_gpu_blocks_override"] = num_blocks + 1
        hints.append(_POOL_HINT)
    return ImportedSection(settings, hints)
