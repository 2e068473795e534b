"""Reports of several runs, of which one is read: GuideLLM's and GenAI-Perf's.

* GuideLLM 0.8.1 (`guidellm/benchmark/schemas/report.py`, version 2 of the report) writes
  `benchmarks.json`, with a benchmark for each rate. Each has `requests`, in lists by status:
  `successful`, `incomplete`, `errored`. A request has `info.timings` in seconds of the wall clock,
  and its tokens in `input_metrics` and `output_metrics`. Reports of 0.2 and 0.3 have the times and
  tokens in the request itself. The prompts are in `request_args` if they were kept.
* Perf Analyzer writes `profile_export.json`, as GenAI-Perf 0.0.16 reads it
  (`genai_perf/profile_data_parser/llm_profile_data_parser.py`): `experiments`, each with
  `requests`: a `timestamp` and `response_timestamps` in ns of the wall clock, the body that was
  sent as `request_inputs.payload`, and `response_outputs`, the server's messages. The file has
  texts and no token counts, unless the server's last message has its `usage`. Without it, each
  message with text is a token; and prompts are as long as `profile_export_genai_perf.json` beside
  it says they are on average, in proportion to their characters. GenAI-Perf's successor AIPerf
  writes other files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sim.core.errors import InputError
from sim.workload.results.known_prompts import (
    only_conversations,
    prompt_text,
    with_known_texts,
    with_linked_turns,
)
from sim.workload.results.model import (
    NO_PROMPTS,
    ImportedRequest,
    ImportedRun,
    JsonNode,
    ReadOptions,
    ServerFacts,
    read_node,
    tokens_at_a_time,
)


def _chosen(path: Path, runs: JsonNode, options: ReadOptions) -> JsonNode:
    """The only run of a file, or number `options.line`."""
    if options.draw_arrivals is not None:
        raise InputError("--draw-arrivals has no effect: the file says when requests were sent")
    found = list(runs.needed().items())
    if options.line is None and len(found) != 1:
        raise InputError(f"{path}: holds {len(found)} {runs.where}: say which with --line N")
    if options.line is not None and options.line > len(found):
        raise InputError(f"{path}: --line {options.line}: it has {len(found)} {runs.where}")
    return found[(options.line or 1) - 1]


def read_guidellm(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one benchmark of a report: the only one, or number `options.line`."""
    report = read_node(path)
    benchmark = _chosen(path, report["benchmarks"], options)
    found = list(_guidellm_requests(benchmark["requests"].needed()))
    turns = [node["info"]["turn_index"].tokens() or 0 for _, node in found]
    requests = only_conversations([request for request, _ in found], turns)
    if not requests:
        raise benchmark["requests"].error("has no request that was sent")
    texts = [prompt_text(node["request_args"].text()) for _, node in found]
    notes = [NO_PROMPTS]
    if any(request.session for request in requests):
        requests, num_linked = with_linked_turns(requests)
        notes = [f"{num_linked} later turns begin with the turn before and its answer"]
    elif any(texts):
        requests = with_known_texts(requests, texts)
        notes = ["prompts are those of request_args, cut into tokens of equal length"]
    strategy = benchmark["config"]["strategy"]
    other = {key: strategy[key].value for key in ("type_", "streams", "rate")}
    model = report["config"]["spec"]["backend"]["model"].text()
    messages = sum(node["info"]["timings"]["token_iterations"].tokens() or 0 for _, node in found)
    tokens = sum(node["output_tokens"].tokens() or 0 for _, node in found)
    facts = ServerFacts(
        model=model,
        other_settings={key.strip("_"): value for key, value in other.items() if value is not None},
        tokens_at_a_time=tokens_at_a_time(tokens, messages),
    )
    return ImportedRun(requests, facts, notes=tuple(notes))


def _guidellm_requests(lists: JsonNode) -> Iterator[tuple[ImportedRequest, JsonNode]]:
    for status in ("successful", "incomplete", "errored"):
        for node in lists[status].items():
            if (request := _guidellm_request(node, status)) is not None:
                yield request, node


def _guidellm_request(node: JsonNode, status: str) -> ImportedRequest | None:
    info = node["info"]
    times = info["timings"]
    if times.value is None:
        start, first, last = (
            node[key] for key in ("start_time", "first_token_time", "last_token_time")
        )
    else:
        start, first, last = (
            times[key] for key in ("request_start", "first_token_iteration", "last_token_iteration")
        )
    start_ns = start.time_ns()
    if start_ns is None:
        return None
    failure = ""
    if status != "successful":
        lines = info["error"].text().strip().splitlines()
        failure = lines[-1][:100] if lines else status
    prompt, output = node["prompt_tokens"].tokens(), node["output_tokens"].tokens()
    first_ns, last_ns = first.time_ns(), last.time_ns()
    if not failure and (first_ns is None or not output):
        failure = "no token came"
    return ImportedRequest(
        rid=node["request_id"].needed().text(),
        arrival_ns=start_ns,
        first_token_ns=first_ns,
        finish_ns=None if failure else last_ns,
        prompt_tokens=prompt,
        output_tokens=output,
        failure=failure,
        session=info["conversation_id"].text(),
    )


_CHARS_PER_TOKEN = 4.0


class _Answer(NamedTuple):
    """What the server's messages say: the times of those with text, and its counts."""

    token_ns: list[int]
    prompt_tokens: int | None
    output_tokens: int | None


def read_genai_perf(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one experiment: the only one, or number `options.line`."""
    experiment = _chosen(path, read_node(path)["experiments"], options)
    nodes = list(experiment["requests"].needed().items())
    if not nodes:
        raise experiment["requests"].error("has no request")
    answers = [_answer(node) for node in nodes]
    payloads = [_payload(node) for node in nodes]
    prompts = [
        prompt_text(payload) or node["request_inputs"]["text_input"].text()
        for payload, node in zip(payloads, nodes, strict=True)
    ]
    model = payloads[0].get("model")
    scale, how = _prompt_scale(path, prompts)
    requests = [
        _genai_perf_request(place, node, answer, round(len(prompt) * scale) or None)
        for place, (node, answer, prompt) in enumerate(zip(nodes, answers, prompts, strict=True))
    ]
    notes = ["prompts are those of the file, cut into tokens of equal length"]
    if any(answer.prompt_tokens is None for answer in answers):
        notes.append(how)
    if any(answer.output_tokens is None for answer in answers):
        notes.append("the server did not count tokens: each message with text is taken for one")
    messages = sum(len(answer.token_ns) for answer in answers)
    tokens = sum(request.output_tokens or 0 for request in requests)
    mode = experiment["experiment"]
    facts = ServerFacts(
        model=model if isinstance(model, str) else "",
        other_settings={mode["mode"].text() or "load": mode["value"].value},
        tokens_at_a_time=tokens_at_a_time(tokens, messages),
    )
    if len({request.session for request in requests} - {""}) < sum(
        bool(request.session) for request in requests
    ):
        requests, num_linked = with_linked_turns(requests)
        notes[0] = f"{num_linked} later turns begin with the turn before and its answer"
    else:
        requests = with_known_texts(requests, prompts)
    return ImportedRun(requests, facts, notes=tuple(notes))


def _genai_perf_request(
    place: int, node: JsonNode, answer: _Answer, estimated: int | None
) -> ImportedRequest:
    failure = "" if answer.token_ns else "no token came"
    return ImportedRequest(
        rid=str(place),
        arrival_ns=node["timestamp"].needed().time_ns(1) or 0,
        first_token_ns=None if failure else answer.token_ns[0],
        finish_ns=None if failure else answer.token_ns[-1],
        prompt_tokens=answer.prompt_tokens or estimated,
        output_tokens=answer.output_tokens or len(answer.token_ns),
        failure=failure,
        session=node["request_inputs"]["session_id"].text(),
    )


def _answer(node: JsonNode) -> _Answer:
    times = list(node["response_timestamps"].items())
    outputs = list(node["response_outputs"].items())
    if len(times) != len(outputs):
        raise node["response_outputs"].error(f"{len(outputs)} messages at {len(times)} times")
    token_ns: list[int] = []
    usage: dict[str, Any] = {}
    for time, output in zip(times, outputs, strict=True):
        messages = list(_messages(output["response"].text()))
        if any(_text_of(message) for message in messages):
            token_ns.append(time.needed().time_ns(1) or 0)
        for message in messages:
            if isinstance(message.get("usage"), dict):
                usage = message["usage"]
    counts = [
        JsonNode(node.line, f"{node.where}.usage.{key}", usage.get(key)).tokens()
        for key in ("prompt_tokens", "completion_tokens")
    ]
    return _Answer(token_ns, *counts)


def _messages(response: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a response: one, or several events of a stream."""
    for part in response.split("\n"):
        text = part.strip().removeprefix("data:").strip()
        if text.startswith("{"):
            try:
                message = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                yield message


def _text_of(message: dict[str, Any]) -> str:
    choices = message.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return str(message.get("text_output") or "")
    choice = choices[0]
    for key in ("delta", "message"):
        if isinstance(choice.get(key), dict):
            parts = (choice[key].get(name) for name in ("content", "reasoning_content"))
            return "".join(part for part in parts if isinstance(part, str))
    return str(choice.get("text") or "")


def _payload(node: JsonNode) -> dict[str, Any]:
    try:
        payload = json.loads(node["request_inputs"]["payload"].text())
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _prompt_scale(path: Path, prompts: list[str]) -> tuple[float, str]:
    """Tokens in a character of a prompt, and how that is known."""
    beside = path.with_name(f"{path.name.partition('.')[0]}_genai_perf.json")
    characters = sum(map(len, prompts))
    if characters and beside.is_file():
        # A number of tokens: with a unit of 1 this reads any number of at least 0.
        mean = read_node(beside)["input_sequence_length"]["avg"].time_ns(1)
        if mean:
            how = f"prompts have {mean:,} tokens on average, as {beside.name} says"
            return mean * len(prompts) / characters, how
    how = f"prompt lengths are estimates: a token of {_CHARS_PER_TOKEN:g} characters"
    return 1 / _CHARS_PER_TOKEN, how
