"""The sizes that are varied to measure how cost grows, and a scenario for each size."""

from collections.abc import Callable
from dataclasses import dataclass

LATENCY = (
    "latency: {kind: linear, step_s: 0.005, per_prefill_token_s: 4.0e-5,"
    " per_decode_request_s: 5.0e-5, per_context_token_s: 2.0e-8}\n"
)
# The load is just below saturation, and the cache is so small that it soon evicts.
TRAFFIC = """
workload:
  kind: synthetic
  num_requests: {requests}
  arrivals: {{kind: poisson, rate_rps: {rate}}}
  prompt_tokens: {{kind: lognormal, mean: 600, cv: 1.0, max: 8000}}
  output_tokens: {{kind: lognormal, mean: 200, cv: 0.7, max: 1000}}
  prefixes: {{groups: 40, tokens: {{kind: uniform, min: 500, max: 2000}}, share_probability: 0.6}}
scheduler: {{page_size: 16, max_total_tokens: 60000, chunked_prefill_size: 4096}}
"""
BURST = """
workload:
  kind: synthetic
  num_requests: {requests}
  arrivals: {{kind: burst, size: {requests}, every_s: 1}}
  prompt_tokens: {{kind: constant, value: 300}}
  output_tokens: {{kind: uniform, min: 20, max: 100}}
  prefixes: {{groups: 40, tokens: {{kind: constant, value: 600}}, share_probability: 0.8}}
scheduler:
  {{page_size: 16, max_total_tokens: 60000, max_running_requests: 32, {rules}}}
"""
# By the words that name the rules in the table.
QUEUE_RULES = {
    "fcfs": "schedule_policy: fcfs",
    "lpm": "schedule_policy: lpm",
    "shortest-prefill-first": "schedule_policy: shortest-prefill-first",
    "dfs-weight": "schedule_policy: dfs-weight",
    "lpm with FAIRNESS_T": "schedule_policy: lpm, fairness: {kind: fairness_t, t_ms: 5000}",
}
# Long answers that all run at once, and short questions that interrupt their decode runs.
RUNNING = """
workload:
  kind: mix
  parts:
    - tenant: running
      workload:
        kind: synthetic
        num_requests: {rows}
        arrivals: {{kind: burst, size: {rows}, every_s: 1}}
        prompt_tokens: {{kind: constant, value: 16}}
        output_tokens: {{kind: constant, value: 4000}}
    - tenant: passing
      workload:
        kind: synthetic
        num_requests: {launches}
        arrivals: {{kind: constant, rate_rps: 50}}
        prompt_tokens: {{kind: constant, value: 16}}
        output_tokens: {{kind: constant, value: 2}}
scheduler: {{page_size: 16, max_total_tokens: 8000000, max_running_requests: 4096}}
"""
# Prompts that share nothing, each computed in chunks.
CONTEXT = """
workload:
  kind: synthetic
  num_requests: 400
  arrivals: {{kind: constant, rate_rps: 0.3}}
  prompt_tokens: {{kind: constant, value: {tokens}}}
  output_tokens: {{kind: constant, value: 20}}
scheduler: {{page_size: 16, max_total_tokens: 1000000, chunked_prefill_size: 4096}}
"""
# Conversations whose every turn is found in the cache; nothing is evicted.
TURNS = """
workload:
  kind: sessions
  sessions: {sessions}
  clients: 8
  turns: {{kind: constant, value: {turns}}}
  user_tokens: {{kind: constant, value: 64}}
  output_tokens: {{kind: constant, value: 16}}
  think_s: {{kind: constant, value: 0.1}}
scheduler: {{page_size: 16, max_total_tokens: 20000000, chunked_prefill_size: 4096}}
"""
# The tree has a branch for each of these prefixes, and nothing is evicted.
TREE = """
workload:
  kind: synthetic
  num_requests: {requests}
  arrivals: {{kind: poisson, rate_rps: 20}}
  prompt_tokens: {{kind: constant, value: 64}}
  output_tokens: {{kind: constant, value: 20}}
  prefixes:
    {{groups: {groups}, tokens: {{kind: constant, value: 512}}, share_probability: 0.9}}
scheduler: {{page_size: 16, max_total_tokens: 40000000, chunked_prefill_size: 4096}}
"""
TURNS_IN_ALL = 4_096
REQUESTS = 2_000
REQUESTS_PER_S = 6
LAUNCHES = 500


@dataclass(frozen=True, slots=True)
class VariedSize:
    """A size that is varied.

    Attributes:
        name: the size's name.
        cost: the unit of the cost, such as "s" or "ms a request".
        goal: the exponent that we want, as text.
        sizes: values of the size, ascending.
        scenario: returns the scenario's text for a size.
        per: returns what the time is divided by, for a size.
        scenario_without: returns the scenario whose time is subtracted; None: none is.
    """

    name: str
    cost: str
    goal: str
    sizes: tuple[int, ...]
    scenario: Callable[[int], str]
    per: Callable[[int], int]
    scenario_without: Callable[[int], str] | None = None


def _named(text: str, replicas: int = 1) -> str:
    return f"name: scaling\nreplicas: {replicas}\n{LATENCY}{text}"


def _traffic(times: int, replicas: int = 1) -> str:
    requests, rate = REQUESTS * times, REQUESTS_PER_S * replicas
    return _named(TRAFFIC.format(requests=requests, rate=rate), replicas)


def _burst(rules: str) -> Callable[[int], str]:
    return lambda requests: _named(BURST.format(requests=requests, rules=rules))


def _running(launches: int) -> Callable[[int], str]:
    return lambda rows: _named(RUNNING.format(rows=rows, launches=launches))


def _context(tokens: int) -> str:
    return _named(CONTEXT.format(tokens=tokens))


def _turns(turns: int) -> str:
    return _named(TURNS.format(turns=turns, sessions=TURNS_IN_ALL // turns))


def _tree(requests: int) -> str:
    return _named(TREE.format(requests=requests, groups=requests // 2))


def axes() -> list[VariedSize]:
    """All sizes that are varied."""
    queue = (250, 500, 1000, 2000, 4000)
    at_once = "queue length, requests at once, {}"
    return [
        VariedSize("requests x", "s", "1.05", (1, 2, 4, 8), _traffic, lambda _: 1),
        *(
            VariedSize(
                at_once.format(words), "ms a request", "0", queue, _burst(rules), lambda n: n
            )
            for words, rules in QUEUE_RULES.items()
        ),
        VariedSize(
            "running requests",
            "ms a launch",
            "below 1",
            (16, 64, 256, 1024),
            _running(LAUNCHES),
            lambda _: LAUNCHES,
            scenario_without=_running(1),
        ),
        VariedSize(
            "context, tokens of a prompt",
            "ms a request",
            "1.05",
            (1_000, 4_000, 16_000, 64_000),
            _context,
            lambda _: 400,
        ),
        VariedSize(
            "tree, turns of a conversation",
            "ms a request",
            "0",
            (4, 16, 64, 256),
            _turns,
            lambda _: TURNS_IN_ALL,
        ),
        VariedSize(
            "tree, requests whose prefixes stay in the cache",
            "ms a request",
            "0",
            (1_000, 4_000, 16_000),
            _tree,
            lambda requests: requests,
        ),
        VariedSize(
            "replicas, each with the same number of requests",
            "s a replica",
            "0",
            (1, 2, 4, 8),
            lambda replicas: _traffic(replicas, replicas),
            lambda replicas: replicas,
        ),
    ]
