"""Results of LLMPerf: `*_individual_responses.json`, a list of requests in order of completion.

Format of ray-project/llmperf at f1d6bed (`token_benchmark_ray.py`, `common_metrics.py`). A request
has its latencies and tokens, and no time of day. The client runs `num_concurrent_requests` threads,
each with one request at a time; this number is in the file `*_summary.json` beside it. From it
follows when requests were sent. Tokens are those of LLMPerf's own tokenizer, whatever the model.
"""

from pathlib import Path

from sim.core.errors import InputError
from sim.workload.results.model import NO_PROMPTS, ImportedRequest, ImportedRun, ServerFacts
from sim.workload.results.nodes import JsonNode, read_node

_DETAILS, _SUMMARY = "_individual_responses", "_summary"


def read_llmperf(path: Path) -> ImportedRun:
    """Read all requests.

    Raises:
        InputError: a file is bad, or the summary is missing.
    """
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
        _request(place, node, start_ns)
        for place, (node, start_ns) in enumerate(zip(nodes, starts, strict=True))
    ]
    facts = ServerFacts(model=summary["model"].text(), told={"num_concurrent_requests": clients})
    how = f"it follows from their latencies, as each of {clients} clients sends its next request"
    notes = (
        NO_PROMPTS,
        f"when requests were sent is not in the file: {how} when it has its answer",
        "tokens were counted with LLMPerf's own tokenizer, which may not be the model's",
    )
    return ImportedRun(requests, facts, notes=notes)


def sent_in_turn_ns(latency_ns: list[int], num_clients: int) -> list[int]:
    """When requests were sent, which are in order of completion.

    Each is taken to be of the client with which it ends first, among those with which it ends after
    the one before.
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


def _request(place: int, node: JsonNode, start_ns: int) -> ImportedRequest:
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
