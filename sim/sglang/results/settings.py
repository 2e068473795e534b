"""The section `scheduler` of a scenario, from the settings that a measured server has saved.

SGLang 0.5.23's `ServerArgs` has the same names as the section, except for the size of the pool: in
`server_info` it is `max_total_num_tokens`.
"""

from collections.abc import Mapping, Sequence

from sim.family.section import ImportedSection, accepted_settings
from sim.sglang.read_launch import pools_of_model
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.section.states import KEY as STATES
from sim.sglang.settings import SchedulerSettings
from sim.sglang.version_rules import NEWEST, version_with_rules_of
from sim.validation import measured_keys
from sim.workload.results.model import ServerFacts

# Their values are plain, but for the last one's.
_SETTINGS = (
    "schedule_policy",
    *measured_keys(SglangSection, SchedulerSettings),
    "max_total_tokens",
    "radix_eviction_policy",
    "radix_eviction_policy_config",
)
# Settings that are shown to the user but not simulated.
_OTHER_SETTINGS = (
    "version",
    "tp_size",
    "dp_size",
    "pp_size",
    "mem_fraction_static",
    "speculative_algorithm",
)
# More tokens than a server keeps free in context and pool (docs/explanation/sglang.md, rule 1).
_SPARE = 16
_POOL_HINT = (
    "PLACEHOLDER: max_total_tokens has room for all requests at once. Give your server's number:"
    " SGLang logs it as max_total_num_tokens."
)


def facts_of(settings: Mapping[str, object], other: Mapping[str, object]) -> ServerFacts:
    """The settings in `server_info` or in a dumped `ServerArgs`; unset ones are left out.

    `other` has further settings, which are only shown to the user.
    """
    scheduler = {key: settings[key] for key in _SETTINGS if settings.get(key) is not None}
    version = _text(settings.get("version"))
    taken = version_with_rules_of(version)
    if taken not in {None, NEWEST}:
        scheduler["version"] = taken
    pool = settings.get("max_total_num_tokens")
    if pool is not None:
        scheduler["max_total_tokens"] = pool
    model = settings.get("model_path")
    more = {key: settings[key] for key in _OTHER_SETTINGS if settings.get(key) is not None}
    return ServerFacts(
        engines=("sglang",),
        model=_text(model),
        scheduler=scheduler,
        other_settings={**other, **more},
        version=version,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def sglang_section(
    known_settings: Mapping[str, object], sizes: Sequence[int], model: str
) -> ImportedSection:
    """See `Family.imported_section`."""
    settings, hints = accepted_settings(SglangSection, {}, known_settings)
    of_windows, notes = pools_of_model(model, {**settings, STATES: None}, 1)
    settings |= of_windows
    hints += notes
    page_size = int(settings.get("page_size", 1))
    if "max_total_tokens" not in settings:
        settings["max_total_tokens"] = sum(sizes) + (2 * page_size + _SPARE) * len(sizes)
        hints.append(_POOL_HINT)
    longest = max(sizes) + _SPARE
    if longest > int(settings.get("context_length", SglangSection().context_length)):
        settings["context_length"] = longest
    return ImportedSection(settings, hints)
