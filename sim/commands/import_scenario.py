"""A scenario to begin with, for an imported run: what the results tell, and what they do not."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from pydantic import ValidationError

from sim.latency.shape_files import model_table
from sim.scenario.load import load_scenario, load_scenario_text
from sim.scenario.scheduler_section import SchedulerSection
from sim.scenario.yaml_writer import yaml_text
from sim.workload.results.model import ImportedRequest, ServerFacts

_TRAFFIC = {"kind": "trace", "format": "servetwin", "path": "workload.jsonl.gz"}
_FROM_TEMPLATE = (
    "seed", "model", "hardware", "latency", "scheduler", "replicas", "router", "slo",
)  # fmt: skip
_LATENCY = {
    "kind": "linear",
    "step_s": 0.01,
    "per_prefill_token_s": 0.00003,
    "per_decode_request_s": 0.0001,
    "per_context_token_s": 0.00000003,
}
_LATENCY_HINT = (
    "PLACEHOLDER: made-up step times, of no server. Give the latency of yours (docs/latency.md),"
    " or import again with --template SCENARIO."
)
_POOL_HINT = (
    "PLACEHOLDER: max_total_tokens has room for everything at once. Give your server's KV tokens:"
    " SGLang logs max_total_num_tokens, vLLM the GPU KV cache size."
)
# More than servers keep free of context and pool (docs/sglang.md, rule 1).
_SPARE = 16
_WIDTH = 96
_SUFFIXES = re.compile(r"(\.jsonl?|\.log|\.pkl|\.gz)+$")


class Composed(NamedTuple):
    """The file's text, what to know about it, and the page size it has."""

    text: str
    notes: tuple[str, ...]
    page_size: int


class _Hint(NamedTuple):
    """A comment above a section; empty for one that stands at the top."""

    section: str
    text: str


def compose_scenario(
    facts: ServerFacts,
    requests: Sequence[ImportedRequest],
    *,
    source: Path,
    out: Path,
    template: Path | None,
) -> Composed:
    """The text of a scenario that reads the folder's workload; it is in order.

    Args:
        facts: what the results tell of the server.
        requests: in order of arrival.
        source: the results, for the name.
        out: the folder it will lie in.
        template: whose sections but the traffic's it takes; None: placeholders.

    Raises:
        InputError: the template, or what becomes of it in another folder.
    """
    if template is None:
        data, hints = _placeholders(facts, requests)
    else:
        data, hints = _of_template(template, out, facts)
    hints = [_Hint("", text) for text in _account(facts, source, requests)] + hints
    name = _SUFFIXES.sub("", source.resolve().name)
    data = {"name": _printable(name) or "imported", **data, "workload": dict(_TRAFFIC)}
    text = _with_hints(data, hints)
    scheduler = load_scenario_text(
        text, name=str(out / "scenario.yaml"), base_dir=out
    ).scenario.scheduler
    notes = [hint.text for hint in hints if hint.section]
    return Composed(text, tuple(notes), scheduler.page_size)


def _account(
    facts: ServerFacts, source: Path, requests: Sequence[ImportedRequest]
) -> Iterator[str]:
    yield (
        f"From {source.name}: {len(requests)} requests, as measured in measured.jsonl.gz beside"
        " this file."
    )
    if facts.engine == "vllm":
        yield "The server was vLLM, whose scheduling rules are not SGLang's."
    told = {"model": facts.model, **facts.told} if facts.model else facts.told
    if told:
        yield "It says: " + ", ".join(f"{key} {value}" for key, value in told.items()) + "."


def _placeholders(
    facts: ServerFacts, requests: Sequence[ImportedRequest]
) -> tuple[dict[str, Any], list[_Hint]]:
    data: dict[str, Any] = {}
    hints = [_Hint("latency", _LATENCY_HINT)]
    if (model := _known_model(facts.model)) is not None:
        data["model"] = model
    data["latency"] = dict(_LATENCY)
    scheduler, refused = _accepted(facts.scheduler)
    if refused:
        hints.append(_Hint("scheduler", f"Told, but not simulated: {_pairs(refused)}."))
    longest, all_tokens = _sizes(requests)
    if "max_total_tokens" not in scheduler:
        page_size = int(scheduler.get("page_size", 1))
        scheduler["max_total_tokens"] = all_tokens + (2 * page_size + _SPARE) * len(requests)
        hints.append(_Hint("scheduler", _POOL_HINT))
    if longest > int(scheduler.get("context_length", SchedulerSection().context_length)):
        scheduler["context_length"] = longest
    return {**data, "scheduler": scheduler}, hints


def _sizes(requests: Sequence[ImportedRequest]) -> tuple[int, int]:
    """Tokens of the longest request with its output, and some to spare; and of all together."""
    sizes = [
        (request.prompt_tokens or 0) + max(request.output_tokens or 0, request.max_new_tokens or 0)
        for request in requests
        if request.has_lengths
    ]
    return max(sizes) + _SPARE, sum(sizes)


def _accepted(told: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, object]]:
    """The settings a scenario can have, and the others."""
    accepted: dict[str, Any] = {}
    refused: dict[str, object] = {}
    for key, value in told.items():
        plain = float(value) if isinstance(value, Decimal) else value
        try:
            SchedulerSection.model_validate({**accepted, key: plain})
        except ValidationError:
            refused[key] = value
        else:
            accepted[key] = plain
    return accepted, refused


def _of_template(
    template: Path, out: Path, facts: ServerFacts
) -> tuple[dict[str, Any], list[_Hint]]:
    loaded = load_scenario(template)
    raw: Mapping[str, Any] = loaded.raw
    data = {key: raw[key] for key in _FROM_TEMPLATE if raw.get(key) is not None}
    base_dir = loaded.base_dir
    if isinstance(data.get("model"), str):
        data["model"] = _from_out(data["model"], base_dir, out)
    latency = data["latency"]
    if isinstance(latency, dict) and isinstance(latency.get("path"), str):
        data["latency"] = {**latency, "path": _from_out(latency["path"], base_dir, out)}
    settings = loaded.scenario.scheduler.model_dump()
    others = {
        key: value
        for key, value in facts.scheduler.items()
        if key in settings and settings[key] != value
    }
    hints = [_Hint("latency", f"Of {template.name}: everything but the traffic.")]
    if others:
        hints.append(_Hint("scheduler", f"The results say otherwise: {_pairs(others)}."))
    return data, hints


def _from_out(path: str, base_dir: Path, out: Path) -> str:
    """A file named relative to the template, named relative to the folder."""
    target = base_dir / path
    return os.path.relpath(target.resolve(), out.resolve()) if target.exists() else path


def _with_hints(data: Mapping[str, Any], hints: Sequence[_Hint]) -> str:
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


def _known_model(told: str) -> str | None:
    """A model of our table, by the last part of a Hugging Face name."""
    name = told.rpartition("/")[2].lower().removesuffix("-instruct")
    return name if name in model_table() else None


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


def _pairs(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())
