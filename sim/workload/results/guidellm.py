"""Results of GuideLLM: `benchmarks.json`, one report with a benchmark for each rate.

Format of GuideLLM 0.8.1 (`guidellm/benchmark/schemas/report.py`, version 2 of the report): each
benchmark has `requests`, in lists by status: `successful`, `incomplete`, `errored`. A request has
`info.timings` in seconds of the wall clock, and its tokens in `input_metrics` and `output_metrics`.
Reports of 0.2 and 0.3 have the times and tokens in the request itself. The prompts are in
`request_args` if they were kept.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

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
    ReadOptions,
    ServerFacts,
)
from sim.workload.results.nodes import JsonNode, chosen, read_node

# More tokens than this at a time: the server speculates, or sends several in a message.
_BUNDLE = 1.1


def read_guidellm(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one benchmark of a report: the only one, or number `options.line`."""
    report = read_node(path)
    benchmark = chosen(path, report["benchmarks"], options)
    found = list(_requests(benchmark["requests"].needed()))
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
    told = {key: strategy[key].value for key in ("type_", "streams", "rate")}
    model = report["config"]["spec"]["backend"]["model"].text()
    per_step = _tokens_at_a_time([node for _, node in found])
    facts = ServerFacts(
        model=model,
        told={key.strip("_"): value for key, value in told.items() if value is not None},
        tokens_at_a_time=per_step,
    )
    return ImportedRun(requests, facts, notes=tuple(notes))


def _requests(lists: JsonNode) -> Iterator[tuple[ImportedRequest, JsonNode]]:
    for status in ("successful", "incomplete", "errored"):
        for node in lists[status].items():
            if (request := _request(node, status)) is not None:
                yield request, node


def _request(node: JsonNode, status: str) -> ImportedRequest | None:
    """A request; None if it was never sent."""
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
    failure = "" if status == "successful" else _failure(info, status)
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


def _failure(info: JsonNode, status: str) -> str:
    lines = info["error"].text().strip().splitlines()
    return lines[-1][:100] if lines else status


def _tokens_at_a_time(nodes: Sequence[JsonNode]) -> float | None:
    """Tokens in each message of the server; None: one, or not known."""
    tokens = messages = 0
    for node in nodes:
        messages += node["info"]["timings"]["token_iterations"].tokens() or 0
        tokens += node["output_tokens"].tokens() or 0
    return tokens / messages if messages and tokens > _BUNDLE * messages else None
