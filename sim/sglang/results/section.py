"""Makes the section `scheduler` of a scenario from a measured run of an SGLang server."""

from collections.abc import Mapping, Sequence

from sim.family.section import ImportedSection, accepted_settings
from sim.sglang.section.scheduler import SglangSection

# More tokens than a server keeps free in context and pool (docs/explanation/sglang.md, rule 1).
_SPARE = 16
_POOL_HINT = (
    "PLACEHOLDER: max_total_tokens has room for all requests at once. Give your server's number:"
    " SGLang logs it as max_total_num_tokens."
)


def sglang_section(known_settings: Mapping[str, object], sizes: Sequence[int]) -> ImportedSection:
    """See `Family.imported_section`."""
    settings, hints = accepted_settings(SglangSection, {}, known_settings)
    page_size = int(settings.get("page_size", 1))
    if "max_total_tokens" not in settings:
        settings["max_total_tokens"] = sum(sizes) + (2 * page_size + _SPARE) * len(sizes)
        hints.append(_POOL_HINT)
    longest = max(sizes) + _SPARE
    if longest > int(settings.get("context_length", SglangSection().context_length)):
        settings["context_length"] = longest
    return ImportedSection(settings, hints)
