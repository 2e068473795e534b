"""Results of GenAI-Perf: `profile_export.json`, written by Perf Analyzer.

Format read by GenAI-Perf 0.0.16 (`genai_perf/profile_data_parser/llm_profile_data_parser.py`):
`experiments`, each with `requests`: a `timestamp` and `response_timestamps` in ns of the wall
clock, the body that was sent as `request_inputs.payload`, and `response_outputs`, the server's
messages. The file has texts and no token counts, unless the server's last message has its `usage`.
Without it, each message with text is a token; and prompts are as long as
`profile_export_genai_perf.json` beside it says they are on average, in proportion to their
characters. GenAI-Perf's successor AIPerf writes other files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sim.workload.results.known_prompts import prompt_text, with_known_texts, with_linked_turns
from sim.workload.results.model import ImportedRequest, ImportedRun, ReadOptions, ServerFacts
from sim.workload.results.nodes import JsonNode, chosen, read_node

_CHARS_PER_TOKEN = 4.0
_BUNDLE = 1.1


class _Answer(NamedTuple):
    """What the server's messages say: the times of those with text, and its counts."""

    token_ns: list[int]
    prompt_tokens: int | None
    output_tokens: int | None


def read_genai_perf(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one experiment: the only one, or number `options.line`."""
    experiment = chosen(path, read_node(path)["experiments"], options)
    nodes = list(experiment["requests"].needed().items())
    if not nodes:
        raise experiment["requests"].error("has no request")
    answers = [_answer(node) for node in nodes]
    prompts = [_prompt(node) for node in nodes]
    scale, how = _prompt_scale(path, prompts)
    requests = [
        _request(place, node, answer, round(len(prompt) * scale) or None)
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
        model=_model(nodes),
        told={mode["mode"].text() or "load": mode["value"].value},
        tokens_at_a_time=tokens / messages if tokens > _BUNDLE * messages > 0 else None,
    )
    if len({request.session for request in requests} - {""}) < sum(
        bool(request.session) for request in requests
    ):
        requests, num_linked = with_linked_turns(requests)
        notes[0] = f"{num_linked} later turns begin with the turn before and its answer"
    else:
        requests = with_known_texts(requests, prompts)
    return ImportedRun(requests, facts, notes=tuple(notes))


def _request(place: int, node: JsonNode, answer: _Answer, estimated: int | None) -> ImportedRequest:
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


def _prompt(node: JsonNode) -> str:
    return prompt_text(_payload(node)) or node["request_inputs"]["text_input"].text()


def _model(nodes: list[JsonNode]) -> str:
    model = _payload(nodes[0]).get("model")
    return model if isinstance(model, str) else ""


def _prompt_scale(path: Path, prompts: list[str]) -> tuple[float, str]:
    """Tokens in a character of a prompt, and how that is known."""
    beside = path.with_name(f"{path.name.partition('.')[0]}_genai_perf.json")
    characters = sum(map(len, prompts))
    if characters and beside.is_file():
        mean = read_node(beside)["input_sequence_length"]["avg"].time_ns(1)
        if mean:
            how = f"prompts have {mean:,} tokens on average, as {beside.name} says"
            return mean * len(prompts) / characters, how
    how = f"prompt lengths are estimates: a token of {_CHARS_PER_TOKEN:g} characters"
    return 1 / _CHARS_PER_TOKEN, how
