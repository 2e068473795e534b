"""Results that are one list of requests: inference-perf's and LLMPerf's.

* inference-perf 0.5.0 (kubernetes-sigs/inference-perf, `inference_perf/reportgen/base.py` and
  `inference_perf/apis/base.py`) writes `per_request_lifecycle_metrics.json`. Each request has
  `start_time` and `end_time` in seconds of the client's clock, the body that was sent as `request`,
  and `info`: the prompt's tokens in `request_metrics`, and in `response_metrics` the tokens and
  their times, with the server's own counts as `server_usage`. Reports of 0.2 have `input_tokens`,
  `output_tokens` and `output_token_times` in `info` itself.
* LLMPerf (ray-project/llmperf at f1d6bed, `token_benchmark_ray.py`, `common_metrics.py`) writes
  `*_individual_responses.json`, in order of completion. A request has its latencies and tokens, and
  no time of day. The client runs `num_concurrent_requests` threads, each with one request at a
  time; this number is in the file `*_summary.json` beside it. From it follows when requests were
  sent. Tokens are those of LLMPerf's own tokenizer, whatever the model.
"""

from pathlib import Path

from sim.core.errors import InputError
from sim.workload.results.known_prompts import prompt_text, with_known_texts
from sim.workload.results.model import (
    NO_PROMPTS,
    ImportedRequest,
    ImportedRun,
    JsonNode,
    ServerFacts,
    read_node,
    tokens_at_a_time,
)


def read_inference_perf(path: Path) -> ImportedRun:
    nodes = list(read_node(path).items())
    if not nodes:
        raise InputError(f"{path}: holds no results")
    requests = [_inference_perf_request(place, node) for place, node in enumerate(nodes)]
    texts = [prompt_text(node["request"].text()) for node in nodes]
    notes = [NO_PROMPTS]
    if any(texts):
        requests = with_known_texts(requests, texts)
        notes = ["prompts are the bodies that were sent, cut into tokens of equal length"]
    tokens = sum(request.output_tokens or 0 for request in requests)
    messages = sum(len(list(_times(node).items())) for node in nodes)
    facts = ServerFacts(tokens_at_a_time=tokens_at_a_time(tokens, messages))
    return ImportedRun(requests, facts, notes=tuple(notes))


def _inference_perf_request(place: int, node: JsonNode) -> ImportedRequest:
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


_DETAILS, _SUMMARY = "_individual_responses", "_summary"


def read_llmperf(path: Path) -> ImportedRun:
    nodes = list(read_node(path).items())
    if not nodes:
        raise InputError(f"{path}: holds no results")
    summary_path = path.with_name(path.name.replace(_DETAILS, _SUMMARY))
    if summary_path == path or not summary_path.is_file():
        raise InputError(
            f"{path}: when requests were sent follows from the number of clients, which is in the"
            " file NAME_summary.json that belongs beside NAME_individual_responses.json"
        )
    summary = read_node(summary_path)
    clients = summary["num_concurrent_requests"].needed().tokens() or 1
    latencies = [node["end_to_end_latency_s"].needed().time_ns() or 0 for node in nodes]
    starts = sent_in_turn_ns(latencies, clients)
    requests = [
        _llmperf_request(place, node, start_ns)
        for place, (node, start_ns) in enumerate(zip(nodes, starts, strict=True))
    ]
    facts = ServerFacts(
        model=summary["model"].text(), other_settings={"num_concurrent_requests": clients}
    )
    how = f"it follows from their latencies, as each of {clients} clients sends its next request"
    notes = (
        NO_PROMPTS,
        f"when requests were sent is not in the file: {how} when it has its answer",
        "tokens were counted with LLMPerf's own tokenizer, which may not be the model's",
    )
    return ImportedRun(requests, facts, notes=notes)


def sent_in_turn_ns(latency_ns: list[int], num_clients: int) -> list[int]:
    """When requests were sent; `latency_ns` has them in order of completion.

    Each is taken to be sent by the client that lets it end earliest, but not before the request
    that was completed before it.
    """
    free_ns = [0] * max(1, min(num_clients, len(latency_ns)))
    starts, last_ns = [], 0
    for latency in latency_ns:
        ends = [(free + latency, place) for place, free in enumerate(free_ns)]
        later = [end for end in ends if end[0] >= last_ns]
        last_ns, place = min(later) if later else max(ends)
        starts.append(free_ns[place])
        free_ns[place] = last_ns
    return starts


def _llmperf_request(place: int, node: JsonNode, start_ns: int) -> ImportedRequest:
    output = node["number_output_tokens"].needed().tokens()
    ttft_ns = node["ttft_s"].time_ns() or None
    failure = ""
    if node["error_code"].value is not None:
        failure = node["error_msg"].text()[:100] or f"error {node['error_code'].value}"
    elif not output or ttft_ns is None:
        failure = "no token came"
    latency_ns = node["end_to_end_latency_s"].time_ns() or 0
    return ImportedRequest(
        rid=str(place),
        arrival_ns=start_ns,
        first_token_ns=None if ttft_ns is None else start_ns + ttft_ns,
        finish_ns=None if failure else start_ns + latency_ns,
        prompt_tokens=node["number_input_tokens"].needed().tokens(),
        output_tokens=output,
        failure=failure,
    )
