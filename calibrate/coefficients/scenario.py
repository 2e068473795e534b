"""The scenario of a measured server whose step times are to be fitted, and its fitted form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrate.coefficients.coefficient import check_kind
from sim.commands.import_commands import measured_operators, read_server, sections_of
from sim.commands.import_results import ReadSource
from sim.commands.recorded_scenario import (
    TRAFFIC,
    Hint,
    known_model,
    scenario_name,
    scenario_text,
    server_sections,
    top_comments,
)
from sim.core.errors import InputError
from sim.families import DEFAULT_FAMILY, FAMILIES, family_of_server
from sim.family.launch_command import ServerSettings
from sim.latency.host import host_preset
from sim.scenario.build import scheduler_config_with_pool
from sim.scenario.kv_pool import kv_pool, size_of_pool
from sim.scenario.kv_sizes import ServedModel
from sim.scenario.load import (
    LoadedScenario,
    load_scenario_data,
    load_scenario_text,
    refuse_pools,
)
from sim.workload.results.model import ServerFacts

_ONE_SERVER = "a fit of step times, which are those of one server"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitServerOptions:
    """What a user says about the server.

    Attributes:
        kind: the kind of latency; None: that of the template, or linear.
        template: a scenario of the server.
        server: the command that launches it.
        hardware: its GPU, as `latency.system` or `hardware` has it.
    """

    kind: str | None
    template: Path | None
    server: str | None
    hardware: str | None


@dataclass(slots=True)
class Draft:
    """A scenario without its workload.

    Attributes:
        data: its sections.
        hints: comments above its sections.
        has_start: step times come from a template; an import did not make them up.
        known: settings of the scheduler that results, template or command have set, by key path.
    """

    data: dict[str, Any]
    hints: list[Hint]
    has_start: bool
    known: set[str]
    _loaded: LoadedScenario | None = None

    @property
    def loaded(self) -> LoadedScenario:
        """What `load` has loaded."""
        if self._loaded is None:
            raise ValueError("not loaded")
        return self._loaded

    def load(
        self, source: ReadSource, path: Path, overrides: Sequence[str], beside: Path, out: Path
    ) -> None:
        """Validate the scenario with a user's options, which become part of the draft.

        Args:
            source: the results whose requests it replays.
            path: their file.
            overrides: `key.path=value` options.
            beside: the folder of its workload.
            out: the folder that it will be written to.

        Raises:
            InputError: an option is bad.
        """
        text, name = draft_text(self, source, path), str(out / "scenario.yaml")
        self._loaded = load_scenario_text(text, overrides, name=name, base_dir=beside)
        refuse_pools(self._loaded, _ONE_SERVER)
        raw = self._loaded.raw
        self.data = {key: raw[key] for key in raw if key not in {"name", "workload"}}

    def set(self, key_path: str, value: Any) -> None:
        """Set a key of a section."""
        section, _, key = key_path.partition(".")
        self.data[section] = {**(self.data.get(section) or {}), key: value}


def families_of(
    sources: Sequence[ReadSource], options: FitServerOptions, chosen: str | None
) -> list[str | None]:
    """Families whose rules the server may follow: all of them if it is unknown.

    Args:
        sources: its results.
        options: what the user says about it.
        chosen: the family that the user sets.
    """
    if options.server is not None or options.template is not None:
        return [None]
    if chosen is not None:
        return [chosen]
    engines = [engine for source in sources for engine in source.facts.engines]
    return [None] if family_of_server(engines) else list(FAMILIES)


def draft_scenario(
    sources: Sequence[ReadSource], options: FitServerOptions, out: Path, family: str | None = None
) -> Draft:
    """Describe the server by what its results and the user say.

    Args:
        sources: its results.
        options: what the user says.
        out: the folder of the scenario.
        family: the family whose rules it is taken to follow; None: what the results say.

    Raises:
        InputError: the options contradict each other, or lack what the kind of latency needs.
    """
    if options.server is not None and options.template is not None:
        raise InputError("--server and --template: give one of the two")
    if options.kind is not None:
        check_kind(options.kind)
    facts = _merged([source.facts for source in sources])
    hints: list[Hint] = []
    if family is not None:
        facts = replace(facts, engines=(family,))
    system = options.hardware.replace("-", "_") if options.hardware else ""
    operators: dict[str, Any] = {"kind": "aiconfigurator", "system": system}
    if options.server is not None:
        if not system:
            raise InputError("--server: needs --hardware, because defaults depend on the GPU")
        server = read_server(options.server, system)
        operators = measured_operators(server, system)
        facts = _with_command(facts, server.model, server.scheduler)
        facts, hints = _with_pool(facts, server, system)
    draft = _draft(facts, sources, options, operators, out)
    draft.hints += hints
    return draft


def _draft(
    facts: ServerFacts,
    sources: Sequence[ReadSource],
    options: FitServerOptions,
    operators: dict[str, Any],
    out: Path,
) -> Draft:
    """See `draft_scenario`; `operators` is a section of kind aiconfigurator for the server."""
    requests = [request for source in sources for request in source.requests]
    data, hints = server_sections(facts, requests, out=out, template=options.template)
    if "pools" in data:
        raise InputError(f"{options.template}: pools: does not go with {_ONE_SERVER}")
    settings = facts.scheduler.keys()
    has_start = False
    if options.template is not None:
        settings = data["scheduler"].keys()
        has_start = options.kind in {None, data["latency"]["kind"]}
    kind = options.kind or data["latency"]["kind"]
    if not has_start:
        data["latency"] = _latency(kind, data, operators, options)
        if kind == "aiconfigurator" and "model" not in data and facts.model:
            # `known_model` knows the table of shapes. The package has more models than that.
            data["model"] = known_model(facts.model) or facts.model
    if kind == "roofline" and options.hardware is not None:
        data["hardware"] = options.hardware.replace("_", "-")
    if isinstance(data.get("host"), str):
        data["host"] = host_preset(data["host"]).model_dump(exclude_defaults=True)
    hints = [hint for hint in hints if hint.section != "latency"]
    return Draft(data, hints, has_start, {f"scheduler.{key}" for key in settings})


def _latency(
    kind: str, data: Mapping[str, Any], operators: dict[str, Any], options: FitServerOptions
) -> dict[str, Any]:
    if kind == "linear":
        return dict(data["latency"]) if data["latency"]["kind"] == kind else _linear(data)
    tp = data["latency"].get("tp", 1) if options.server is None else operators.get("tp", 1)
    if kind == "roofline":
        return {"kind": kind, "tp": tp}
    if not operators["system"]:
        raise InputError("--kind aiconfigurator: needs --hardware, such as h100_sxm")
    backend = data["scheduler"].get("family", DEFAULT_FAMILY)
    return {"backend": backend, "tp": tp, **operators}


def _linear(data: Mapping[str, Any]) -> dict[str, Any]:
    zero = dict.fromkeys(
        ("step_s", "per_prefill_token_s", "per_decode_request_s", "per_context_token_s"), 0.0
    )
    dp = data["latency"].get("dp", 1)
    return {"kind": "linear", **zero, **({"dp": dp} if dp > 1 else {})}


def _merged(all_facts: Sequence[ServerFacts]) -> ServerFacts:
    """What several results say about one server. The first result that has a value decides it."""
    first = all_facts[0]
    scheduler: dict[str, object] = {}
    for facts in reversed(all_facts):
        scheduler |= facts.scheduler
    return ServerFacts(
        engines=next((facts.engines for facts in all_facts if facts.engines), ()),
        model=next((facts.model for facts in all_facts if facts.model), ""),
        scheduler=scheduler,
        other_settings=first.other_settings,
        num_ranks=first.num_ranks,
    )


def _with_command(facts: ServerFacts, model: str, scheduler: Mapping[str, Any]) -> ServerFacts:
    # A fitted scenario has no drafts (docs/how-to/calibrated.md#speculative-decoding).
    settings = {
        key: value
        for key, value in scheduler.items()
        if key != "family" and not key.startswith("speculative_")
    }
    engines = (str(scheduler["family"]),)
    return ServerFacts(engines, model, {**facts.scheduler, **settings}, facts.other_settings)


def _with_pool(
    facts: ServerFacts, server: ServerSettings, system: str
) -> tuple[ServerFacts, list[Hint]]:
    """With the KV pool that the server's flags leave on such a GPU, and a comment on it.

    Unchanged if the results or the flags have its size, or if its model is not known.
    """
    sections, _ = sections_of(server, system)
    model = known_model(server.model) or server.model
    data = {"name": "server", "model": model, **sections, "workload": dict(TRAFFIC)}
    try:
        loaded = load_scenario_data(data, name="--server")
        scenario, base_dir = loaded.scenario, loaded.base_dir
        served, section = ServedModel.of(scenario, base_dir), scenario.scheduler
        config = scheduler_config_with_pool(
            scenario, size_of_pool(served), base_dir=base_dir, fail_at=loaded.error
        )
        pool = kv_pool(served, config)
    except InputError:
        return facts, []
    if section.pool_key in facts.scheduler:
        return facts, []
    share, _ = section.memory_share
    text = f"{section.pool_key} is {pool.source}. The server logs what it has measured."
    # The size takes the place of the share of memory that it follows from.
    settings = {key: value for key, value in facts.scheduler.items() if key != share}
    known = replace(
        facts, scheduler={**settings, section.pool_key: section.pool_setting(pool.tokens)}
    )
    return known, [Hint("scheduler", text)]


def draft_text(draft: Draft, source: ReadSource, path: Path, comments: Sequence[str] = ()) -> str:
    """The text of the scenario.

    Args:
        draft: the scenario.
        source: the results whose requests it replays.
        path: their file.
        comments: above the section `latency`.
    """
    engines = (str(draft.data["scheduler"].get("family", DEFAULT_FAMILY)),)
    facts = replace(source.facts, engines=engines)
    hints = [Hint("", text) for text in top_comments(facts, path, source.requests)]
    hints += [Hint("latency", text) for text in comments] + draft.hints
    data = {"name": scenario_name(path), **draft.data, "workload": dict(TRAFFIC)}
    host = {key: value for key, value in (data.pop("host", None) or {}).items() if value}
    ordered = {}
    for section, content in data.items():
        ordered[section] = content
        if section == "latency" and host:
            ordered["host"] = host
    return scenario_text(ordered, hints)
