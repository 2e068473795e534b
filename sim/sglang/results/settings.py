"""Results of SGLang's benchmark, and the scenario's section from what a server says of itself.

SGLang 0.5.23's `ServerArgs` has the same names as the section, except for the size of the pool: in
`server_info` it is `max_total_num_tokens`.

Format of SGLang 0.5.23 (`sglang/benchmark/serving.py`) and 0.5.3 (`sglang/bench_serving.py`): one
run a line. Neither version saves the prompts or the times at which requests were sent. Such times
are read if a patched client has saved them as `arrival_times` (proposed in sgl-project/sglang,
pull request 39596) or `start_times`. 0.5.23 saves the server's settings as `server_info`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sim.family.section import ImportedSection, accepted_settings
from sim.sglang.read_launch import pools_of_model, rules_taken
from sim.sglang.section.pools import STATES
from sim.sglang.section.scheduler import SglangSection
from sim.sglang.settings import SchedulerSettings
from sim.sglang.version_rules import NEWEST
from sim.validation import measured_keys
from sim.workload.results.bench import (
    Pacing,
    accepted_of,
    concurrency_of,
    earlier_runs,
    other_settings_of,
    rate_of,
    read_document,
    read_requests,
)
from sim.workload.results.model import NO_PROMPTS, ImportedRun, ReadOptions, ServerFacts
from sim.workload.traces.files import JsonObject

# Their values are numbers, strings and booleans; the last one's is a mapping.
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
    model, drafts = _text(settings.get("model_path")), settings.get("speculative_algorithm")
    taken = rules_taken(version, model, has_drafts=bool(drafts))
    if taken not in {None, NEWEST}:
        scheduler["version"] = taken
    pool = settings.get("max_total_num_tokens")
    if pool is not None:
        scheduler["max_total_tokens"] = pool
    more = {key: settings[key] for key in _OTHER_SETTINGS if settings.get(key) is not None}
    return ServerFacts(
        engines=("sglang",),
        model=model,
        scheduler=scheduler,
        other_settings={**other, **more},
        version=version,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def sglang_section(
    known_settings: Mapping[str, object], sizes: Sequence[int], model: str = ""
) -> ImportedSection:
    """See `Family.imported_section`."""
    settings, hints = accepted_settings(SglangSection, {}, known_settings)
    # With its key given, though without a value, no pool of states is derived.
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


_HINT = "results have it with --output-details"
_OF_CLIENT = ("backend", "dataset_name", "request_rate", "max_concurrency", "tag")


def read_sglang_bench(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one run.

    Raises InputError: the file is bad, or it has no arrival times and none may be drawn.
    """
    line, row = read_document(path, options.line)
    pacing = Pacing(rate_of(line, row), max_concurrency=concurrency_of(line, row))
    requests, notes = read_requests(line, row, pacing, options.draw_arrivals, hint=_HINT)
    if options.line is not None:
        notes += earlier_runs(path, line, row)
    return ImportedRun(requests, _facts(row), notes=(NO_PROMPTS, *notes, *_limits(row)))


def _facts(row: JsonObject) -> ServerFacts:
    other = other_settings_of(row, _OF_CLIENT)
    info = row.get("server_info")
    facts = ServerFacts((str(row.get("backend")),), other_settings=other)
    if isinstance(info, Mapping) and "decode" not in info:
        facts = facts_of(info, other)
    return replace(facts, tokens_at_a_time=accepted_of(row, "accept_length"))


def _limits(row: JsonObject) -> list[str]:
    """Notes on features of the server that a simulation of this workload does not have."""
    notes = []
    cache = row.get("cache_report")
    if isinstance(cache, Mapping) and cache.get("total_cached_tokens"):
        share = cache.get("cache_hit_rate_pct")
        notes.append(f"the server found {share} % of the prompt tokens in its prefix cache")
    info = row.get("server_info")
    if isinstance(info, Mapping) and "decode" in info:
        notes.append("prefill and decode ran on separate servers; a simulated server does both")
    return notes
