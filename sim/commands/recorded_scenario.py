"""Scenarios that are made of results, of served runs and of command lines, and can be simulated."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.commands.import_results import MEASURED, SCENARIO, WORKLOAD
from sim.commands.output import print_line
from sim.commands.running.simulate import summary_with_confidence
from sim.core.errors import InputError, say
from sim.core.files import make_folder, remove_file, write_text
from sim.core.packed import open_text
from sim.core.request import Status
from sim.core.units import NS_PER_S
from sim.engine.records import RequestRecord
from sim.families import DEFAULT_FAMILY, FAMILIES, family_of_server
from sim.family.launch_command import version_note
from sim.family.section import ServerSection, setting_pairs
from sim.latency.architectures.model_key import canonical_name, model_table, shape_if_known
from sim.latency.hardware import gpu_named
from sim.report.run_folder import SUMMARY, write_out_dir
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import LoadedScenario, load_scenario, load_scenario_text, refuse_user_classes
from sim.scenario.overrides import for_folder
from sim.scenario.schema import BESIDE_THE_RUN
from sim.scenario.strict_yaml import yaml_text
from sim.workload.results.model import ImportedRequest, ServerFacts
from sim.workload.traces.servetwin import servetwin_line

if TYPE_CHECKING:
    from sim.api.live_server import LiveServer


TRAFFIC = {"kind": "trace", "format": "servetwin", "path": WORKLOAD}

# The keys that are taken from a template. Results count all of their requests, so `warmup` and
# `cooldown` are not among them.
_FROM_TEMPLATE = (
    "seed", "model", "hardware", "latency", "host", "scheduler", "acceptance", "replicas",
    "autoscale", "router", "pools", "transfer", "slo", "fitted",
)  # fmt: skip
_PLACEHOLDER_LATENCY = {
    "kind": "linear",
    "step_s": 0.01,
    "per_prefill_token_s": 0.00003,
    "per_decode_request_s": 0.0001,
    "per_context_token_s": 0.00000003,
}
_LATENCY_HINT = (
    "PLACEHOLDER: these step times are invented. Give the latency of your server"
    " (docs/explanation/latency.md), or import again with --template SCENARIO."
)
# Kinds of latency that have `dp`: ranks that step together.
_KINDS_WITH_RANKS = ("layers", "aiconfigurator", "linear")
_WIDTH = 96
_SUFFIXES = (".json", ".jsonl", ".csv", ".log", ".pkl", ".gz")


class Composed(NamedTuple):
    """The text of a scenario file, notes for the user, and the scheduler's page size."""

    text: str
    notes: tuple[str, ...]
    page_size: int


class Hint(NamedTuple):
    """A comment above a section; `section` is empty for a comment at the top of the file."""

    section: str
    text: str


def compose_scenario(
    facts: ServerFacts,
    requests: Sequence[ImportedRequest],
    *,
    source: Path,
    out: Path,
    template: Path | None,
    overrides: Sequence[str] = (),
    name: str | None = None,
) -> Composed:
    """Compose a valid scenario that sends the workload of its folder; no file is written.

    `source` is the file or folder of the results, `out` the folder of the scenario file. All
    sections but the workload are taken from the `template`, with these `--set` options; without it
    they are placeholders. `name` is the scenario's; without it, that of the results.
    """
    data, hints = server_sections(facts, requests, out=out, template=template, overrides=overrides)
    hints = [Hint("", text) for text in top_comments(facts, source, requests)] + hints
    data = {"name": name or scenario_name(source), **data, "workload": dict(TRAFFIC)}
    text = scenario_text(data, hints)
    loaded = load_scenario_text(text, name=str(out / SCENARIO), base_dir=out)
    if template is None:
        refuse_user_classes(loaded)
    notes = [hint.text for hint in hints if hint.section]
    return Composed(text, tuple(notes), loaded.scenario.scheduler.page_size)


def scenario_name(source: Path) -> str:
    name = source.resolve().name
    while name.endswith(_SUFFIXES):
        name = name.rpartition(".")[0]
    return _printable(name) or "imported"


def server_sections(
    facts: ServerFacts,
    requests: Sequence[ImportedRequest],
    *,
    out: Path,
    template: Path | None,
    overrides: Sequence[str] = (),
) -> tuple[dict[str, Any], list[Hint]]:
    """The sections of a scenario that describe the server, with comments.

    They are taken from the `template`, with these `--set` options; without it they are
    placeholders, with a KV pool that is large enough for all `requests`.
    """
    if template is None:
        return _placeholders(facts, requests)
    return _of_template(load_scenario(template, overrides), template.name, out, facts)


def top_comments(
    facts: ServerFacts, source: Path, requests: Sequence[ImportedRequest]
) -> Iterator[str]:
    """The comments at the top of the file: what the results say that no key can."""
    measured = f"as measured in {MEASURED} beside this file"
    yield f"From {source.name}: {len(requests)} requests, {measured}."
    family = family_of_server(facts.engines)
    if family is not None:
        yield f"The server is simulated with {family.title}'s rules."
    else:
        guess = f"that it follows {FAMILIES[DEFAULT_FAMILY].title}'s rules is a guess"
        yield f"The results do not name the server's software: {guess}."
    other = {"model": facts.model, **facts.other_settings} if facts.model else facts.other_settings
    if other:
        yield (
            "The results say: " + ", ".join(f"{key} {value}" for key, value in other.items()) + "."
        )


def _placeholders(
    facts: ServerFacts, requests: Sequence[ImportedRequest]
) -> tuple[dict[str, Any], list[Hint]]:
    data: dict[str, Any] = {}
    if model := known_model(facts.model) or "":
        data["model"] = model
    family = family_of_server(facts.engines) or FAMILIES[DEFAULT_FAMILY]
    section = family.imported_section(facts.scheduler, _sizes(requests), model)
    hints = [Hint("latency", _LATENCY_HINT)]
    hints += [Hint("scheduler", text) for text in section.hints]
    if facts.version:
        newest = family.section().model_fields["version"].default
        taken = str(section.settings.get("version", newest))
        note = version_note(family.title, facts.version, taken)
        hints += [Hint("scheduler", note)] if note else []
    latency: dict[str, Any] = dict(_PLACEHOLDER_LATENCY)
    if facts.num_ranks > 1:
        latency["dp"] = facts.num_ranks
    return {**data, "latency": latency, "scheduler": section.settings}, hints


def _of_template(
    loaded: LoadedScenario, name: str, out: Path, facts: ServerFacts
) -> tuple[dict[str, Any], list[Hint]]:
    raw: Mapping[str, Any] = loaded.raw
    data = {key: raw[key] for key in _FROM_TEMPLATE if raw.get(key) is not None}
    data = for_folder(data, loaded.base_dir, out)
    first = next(key for key in data if key in {"latency", "scheduler", "pools"})
    hints = [Hint(first, f"Everything but the traffic is from {name}.")]
    if loaded.pools:
        return data, hints
    others = _differing(facts, loaded.scenario.scheduler)
    if others:
        hints.append(Hint("scheduler", f"The results say otherwise: {setting_pairs(others)}."))
    if facts.num_ranks > 1:
        hints.append(Hint("latency", _give_ranks(data, facts.num_ranks)))
    return data, hints


def _give_ranks(data: dict[str, Any], num_ranks: int) -> str:
    """Make each replica a group of ranks, if the latency in `data` can; returns a hint."""
    latency, stepped = data["latency"], f"The server had {num_ranks} ranks that stepped together"
    kind = latency.get("kind") if isinstance(latency, dict) else None
    if kind not in _KINDS_WITH_RANKS:
        return f"{stepped}. Latency of kind {kind} has no ranks, so one server is simulated."
    hint = f"{stepped}: dp {num_ranks}."
    given = {"dp": num_ranks}
    if kind == "layers" and not {"all_reduce_latency_s", "all_reduce_gb_s"} & latency.keys():
        given |= {"all_reduce_latency_s": 0, "all_reduce_gb_s": 0}
        hint += (
            " PLACEHOLDER: what they exchange takes no time; give all_reduce_latency_s and"
            " all_reduce_gb_s."
        )
    if kind == "aiconfigurator" and not {"moe_tp", "moe_ep"} & latency.keys():
        given["moe_ep"] = num_ranks * latency.get("tp", 1)
    data["latency"] = {**latency, **given}
    if data.get("replicas") == num_ranks:
        del data["replicas"]
        hint += f" The template's {num_ranks} replicas became the ranks of one."
    return hint


def _differing(facts: ServerFacts, section: ServerSection) -> dict[str, object]:
    """The settings in which the results differ from a section of the same family."""
    family = family_of_server(facts.engines) or FAMILIES[DEFAULT_FAMILY]
    if not isinstance(section, family.section()):
        return {}
    settings = section.model_dump()
    return {
        key: value
        for key, value in facts.scheduler.items()
        if key in settings and settings[key] != value
    }


def _sizes(requests: Sequence[ImportedRequest]) -> list[int]:
    """The most tokens that each request can have: its prompt and its longest output."""
    return [
        (request.prompt_tokens or 0) + max(request.output_tokens or 0, request.max_new_tokens or 0)
        for request in requests
        if request.has_lengths
    ]


def scenario_text(data: Mapping[str, Any], hints: Sequence[Hint]) -> str:
    """The YAML text of a scenario, with hints as comments above its sections."""
    lines = _comments(hint.text for hint in hints if not hint.section)
    for line in yaml_text(data).splitlines():
        section = line.partition(":")[0]
        lines += _comments(hint.text for hint in hints if hint.section == section)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _comments(texts: Iterable[str]) -> list[str]:
    return [
        f"# {line}"
        for text in texts
        for line in wrap(_printable(text), _WIDTH, break_long_words=False, break_on_hyphens=False)
    ]


def known_model(hugging_face_name: str) -> str | None:
    """The model table's name for a model of Hugging Face; None: the table does not have it."""
    short = hugging_face_name.rpartition("/")[2].lower().removesuffix("-instruct")
    names = (short, canonical_name(hugging_face_name))
    return next((name for name in names if name in model_table()), None)


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


def write_traffic(out: Path, answered: Iterable[tuple[RequestRecord, Sequence[int]]]) -> None:
    """Write a trace: requests in order of arrival, each with the tokens of its output."""
    with open_text(out / WORKLOAD) as file:
        file.writelines(_line(record, output_ids) for record, output_ids in answered)


def _line(record: RequestRecord, output_ids: Sequence[int]) -> str:
    spec = record.spec
    has_finished = record.status is Status.FINISHED
    row: dict[str, object] = {
        "rid": spec.rid,
        "input_ids": spec.prompt.token_ids().tolist(),
        # If a request has ended early, nobody knows how long its output would have become.
        "output_len": len(output_ids) if has_finished else spec.max_new_tokens,
        "max_new_tokens": spec.max_new_tokens,
        "ignore_eos": spec.ignore_eos,
    }
    if output_ids:
        row["output_ids"] = list(output_ids)
    if spec.priority is not None:
        row["priority"] = spec.priority
    if spec.gives_up_ns is not None and not has_finished:
        row["gives_up_after"] = spec.gives_up_ns / NS_PER_S
    return servetwin_line(spec.arrival_ns, row)


def with_traffic(raw: dict[str, Any], base_dir: Path, out: Path) -> dict[str, Any]:
    """A scenario with the trace as its workload; its paths are made relative to `out`."""
    raw = {key: value for key, value in raw.items() if key not in BESIDE_THE_RUN}
    return {**for_folder(raw, base_dir, out), "workload": dict(TRAFFIC)}


def write_run(server: "LiveServer", built: BuiltScenario, out: Path) -> None:
    """Write the folder of a run of `simulate serve`, if any request came."""
    log = server.log()
    if not len(log.requests.rid):
        say("servetwin: no request came, so no folder is written")
        return
    loaded = built.loaded
    make_folder(out)
    remove_file(out / SUMMARY)
    # The traffic first: all else can be simulated again from it, if the disk is full. It has the
    # rejected requests: the router has given them a turn, and has to do so in a replay.
    write_traffic(out, server.answered())
    write_text(out / SCENARIO, yaml_text(with_traffic(dict(loaded.raw), loaded.base_dir, out)))
    write_out_dir(log, summary_with_confidence(log, built), out, loaded.raw)
    print_line(f"{len(log.requests.rid):,} requests served: see {out}")


_NAME = "scenario"
# Ways of drafting that run no layers, and so take no time; None: no drafts.
_WITHOUT_DRAFTER = {"ngram", "NGRAM", None}


def runnable(
    data: dict[str, Any], hints: list[Hint], base_dir: Path
) -> tuple[dict[str, Any], list[Hint]]:
    """A scenario that can be built, with comments.

    A model or a GPU of which no operators were measured gets step times of kind roofline. Without
    the package of measured operators nothing is known, and the scenario stays as it is.

    Raises InputError: `--server: reason`, if a run would refuse it.
    """
    if find_spec("aiconfigurator_core") is None or (reason := _why_not(data, base_dir)) is None:
        return data, hints
    other = _with_rooflines(data)
    refused = reason if other is None else _why_not(other, base_dir)
    if other is None or refused is not None:
        raise InputError(f"--server: {refused}")
    section = "pools" if "pools" in other else "latency"
    formats = [
        each["latency"].get("quantization") for each in data.get("pools", {"": data}).values()
    ]
    if any(formats):
        reason += "; that kind takes the number formats of the model's own checkpoint"
    text = f"step times of kind roofline, because those of measured operators are missing: {reason}"
    return other, [*hints, Hint(section, text)]


def _why_not(data: Mapping[str, Any], base_dir: Path) -> str | None:
    """Why a run would refuse the scenario; None: it would not."""
    try:
        build(load_scenario_text(scenario_text(data, ()), name=_NAME, base_dir=base_dir))
    except InputError as error:
        text = str(error).removeprefix(f"{_NAME}:").strip()
        line, _, rest = text.partition(": ")
        return rest if line.isdigit() else text
    return None


def _with_rooflines(data: dict[str, Any]) -> dict[str, Any] | None:
    """The scenario with kind roofline in place of aiconfigurator; None: that has no such servers.

    It has no ranks, and no times of drafters: a layer that drafts takes its share of the model's.
    """
    shape = shape_if_known(data["model"])
    num_layers = 0 if shape is None else sum(layer.count for layer in shape.layers)
    sections = data.get("pools", {"": data})
    changed = {}
    for name, section in sections.items():
        latency, scheduler = section["latency"], section["scheduler"]
        hardware = gpu_named(latency["system"])
        if hardware is None or latency.get("dp", 1) > 1:
            return None
        found = {key: latency[key] for key in ("tp", "pp") if key in latency}
        drafts = scheduler.get("speculative_config") or {}
        if {drafts.get("method"), scheduler.get("speculative_algorithm")} - _WITHOUT_DRAFTER:
            found["drafter_share"] = round(1 / max(1, num_layers), 4)
        new = {"hardware": hardware.name, "latency": {"kind": "roofline", **found}}
        rest = {key: value for key, value in section.items() if key not in new}
        first = {key: rest.pop(key) for key in ("name", "model", "role") if key in rest}
        changed[name] = {**first, **new, **rest}
    return {**data, "pools": changed} if "pools" in data else changed[""]
