"""Results of inference-perf: `per_request_lifecycle_metrics.json`, a list of requests.

Format of inference-perf 0.5.0 (kubernetes-sigs/inference-perf, `inference_perf/reportgen/base.py`
and `inference_perf/apis/base.py`). Each request has `start_time` and `end_time` in seconds of the
client's clock, the body that was sent as `request`, and `info`: the prompt's tokens in
`request_metrics`, and in `response_metrics` the tokens and their times, with the server's own
counts as `server_usage`. Reports of 0.2 have `input_tokens`, `output_tokens` and
`output_token_times` in `info` itself.
"""

from pathlib import Path

from sim.core.errors import InputError
from sim.workload.results.known_texts import prompt_text, with_known_texts
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun, ServerFacts
from sim.workload.results.nodes import JsonNode, read_node

_BUNDLE = 1.1


def read_inference_perf(path: Path) -> ImportedRun:
    """Read all requests.

    Raises:
        InputError: the file is bad, or has no request.
    """
    nodes = list(read_node(path).items())
    if not nodes:
        raise InputError(f"{path}: holds no results")
    requests = [_request(place, node) for place, node in enumerate(nodes)]
    texts = [prompt_text(node["request"].text()) for node in nodes]
    notes = [NO_PROMPTS]
    if any(texts):
        requests = with_known_texts(requests, texts)
        notes = ["prompts are the bodies that were sent, cut into tokens of equal length"]
    tokens = sum(request.output_tokens or 0 for request in requests)
    messages = sum(len(list(_times(node).items())) for node in nodes)
    bundled = messages and tokens > _BUNDLE * messages
    facts = ServerFacts(tokens_at_a_time=tokens / messages if bundled else None)
    return ImportedRun(requests, facts, notes=tuple(notes))


def _request(place: int, node: JsonNode) -> ImportedRequest:
    info = node["info"]
    response = info["response_metrics"]
    usage = response["server_usage"]
    prompt = usage["prompt_tokens"].tokens() or info["input_tokens"].tokens()
    prompt = prompt or info["request_metrics"]["text"]["input_tokens"].tokens()
    output = usage["completion_tokens"].tokens() or response["output_tokens"].tokens()
    output = info["output_tokens"].tokens() if output is None else output
    times = list(_times(node).items())
    failure = _failure(node["error"]) or ("" if output else "no token came")
    start_ns = node["start_time"].needed().time_ns()
    end = times[-1] if times else node["end_time"]
    return ImportedRequest(
        rid=str(place),
        arrival_ns=start_ns or 0,
        first_token_ns=times[0].time_ns() if times else None,
        finish_ns=None if failure else end.time_ns(),
        prompt_tokens=prompt,
        output_tokens=output,
        failure=failure,
    )


def _times(node: JsonNode) -> JsonNode:
    """When tokens came: of the messages with tokens, or as an old report has them."""
    info = node["info"]
    response = info["response_metrics"]
    for times in (response["chunk_times"], response["output_token_times"]):
        if times.value:
            return times
    return info["output_token_times"]


def _failure(error: JsonNode) -> str:
    if error.value is None:
        return ""
    words = [error[key].text() for key in ("error_type", "error_msg") if error[key].text()]
    return ": ".join(words)[:100] or "error"
