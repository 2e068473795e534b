"""KV that a policy keeps after its request has ended: how long, and what it never does."""

import sys
from textwrap import dedent

import pytest
import yaml

from sim.core.errors import InputError
from sim.testing.user_classes import simulate_both_ways

CLASS = """
    from sim.sglang.policies.policy import CacheBlind

    SEEN = []


    class Keeps(CacheBlind):
        def __init__(self, config, *, keep_s=0.0):
            super().__init__(config)
            self.keep_s = keep_s

        def keep_ns(self, request, now_ns):
            return round(self.keep_s * 1e9)

        def order(self, waiting, view):
            SEEN.append((view.now_ns, sorted(view.kept)))
            return sorted(waiting, key=lambda request: request.spec.session not in view.kept)
"""
# Steps take 50 ms, and nothing else takes any time.
SCENARIO = {
    "name": "kept",
    "latency": {
        "kind": "linear", "step_s": 0.05, "per_prefill_token_s": 0, "per_decode_request_s": 0,
        "per_context_token_s": 0,
    },
    "scheduler": {
        "page_size": 1, "max_total_tokens": 100, "clip_max_new_tokens": 1,
        "disable_overlap_schedule": True,
    },
}  # fmt: skip
# An agent's second request comes a second after the answer to its first. Between them comes one
# that needs more room than is left beside the first. Others run for 1.75 s each.
CONVERSATION = """
    class Conversation:
        def __init__(self, traffic, *, between=60, runs=(0.0,)):
            self.traffic, self.between, self.runs = traffic, between, runs

        def clients(self):
            traffic = self.traffic
            text, other = traffic.text(), traffic.text()
            first = traffic.request([(text, 40)], 2, rid="first", session="a")
            second = traffic.request([(text, 40), (other, 5)], 2, rid="second", session="a")
            yield [traffic.turn(first), traffic.turn(second, think_s=1)]

        def arrivals(self):
            for arrival_s in self.runs:
                yield self.traffic.request(1, 35, arrival_s=arrival_s, rid=f"runs {arrival_s}")
            yield self.traffic.request(self.between, 2, arrival_s=0.5, rid="between")
"""


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    """A file with the classes beside it; the keys are merged over those above."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("keeps", "talk"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def write(workload, text=CLASS, top=(), **scheduler):
        (tmp_path / "keeps.py").write_text(dedent(text), encoding="utf-8")
        (tmp_path / "talk.py").write_text(dedent(CONVERSATION), encoding="utf-8")
        keys = {**SCENARIO, "workload": workload, **dict(top)}
        keys["scheduler"] = {**SCENARIO["scheduler"], **scheduler}
        path = tmp_path / "kept.yaml"
        path.write_text(yaml.safe_dump(keys), encoding="utf-8")
        return path

    return write


@pytest.fixture
def talk(scenario):
    """Of each request: tokens found in the cache, and when it was admitted, in s."""

    def run(keep_s, slots=9, pool=100, **talk):
        policy = {"kind": "keeps:Keeps", "keep_s": keep_s}
        workload = {"kind": "talk:Conversation", **talk}
        keys = {"max_running_requests": slots, "max_total_tokens": pool}
        log = simulate_both_ways(scenario(workload, schedule_policy=policy, **keys))
        assert set(log.requests.status) == {"finished"}
        columns = log.requests
        facts = zip(columns.cached_tokens.tolist(), columns.scheduled_ns / 1e9, strict=True)
        return dict(zip(columns.rid, facts, strict=True))

    return run


def test_kept_kv_is_found_and_what_needs_its_room_waits(talk):
    """Without it, the request between takes the place at once.

    What arrives for its session is looked at, although the batch was full.
    """
    requests = talk(0)
    assert requests["second"][0] == 0
    assert requests["between"][1] == pytest.approx(0.5, abs=0.06)
    requests = talk(5)
    assert requests["second"] == (40, pytest.approx(1.1, abs=0.06))
    assert requests["between"][1] > requests["second"][1]


def test_kept_kv_is_let_go_when_its_time_is_over(talk):
    """The first answer ends after two steps; the request between begins 0.6 s later."""
    requests = talk(0.6)
    assert requests["between"][1] == pytest.approx(0.7, abs=0.06)
    assert requests["second"][0] == 0


def test_kept_kv_stays_as_long_as_its_session_waits(talk):
    """Its time is over at 1.2 s, but its second request has come, and waits for a slot."""
    requests = talk(1.1, slots=2, pool=160, runs=(0.0, 0.2))
    assert requests["second"] == (40, pytest.approx(1.8, abs=0.06))


def test_kept_kv_is_let_go_if_nothing_else_runs(talk):
    """The server would stand still, as what waits does not fit beside it."""
    requests = talk(1000, runs=())
    assert requests["between"][1] == pytest.approx(0.5, abs=0.06)
    assert requests["second"][0] == 0


def test_a_policy_sees_whose_kv_is_kept(talk):
    talk(5)
    kept = [sessions for _, sessions in sys.modules["keeps"].SEEN]
    assert kept[0] == kept[-1] == []
    assert ["a"] in kept


AGENTS = {
    "kind": "agents", "sessions": 8, "arrivals": {"kind": "poisson", "rate_rps": 3},
    "tasks": {"kind": "uniform", "min": 1, "max": 2},
    "calls": {"kind": "uniform", "min": 1, "max": 6},
    "task_tokens": {"kind": "uniform", "min": 5, "max": 80},
    "tool_tokens": {"kind": "uniform", "min": 1, "max": 90},
    "output_tokens": {"kind": "uniform", "min": 1, "max": 60},
    "think_s": {"kind": "exponential", "mean": 1}, "tool_s": {"kind": "exponential", "mean": 0.3},
    "system_prompts": {"count": 2, "tokens": 40},
    "sub_agents": {
        "share": 0.1, "count": {"kind": "uniform", "min": 1, "max": 3},
        "calls": {"kind": "uniform", "min": 1, "max": 3},
        "task_tokens": {"kind": "uniform", "min": 5, "max": 30}},
}  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"page_size": 16, "chunked_prefill_size": 128},
        {"disable_overlap_schedule": False, "enable_mixed_chunk": True, "chunked_prefill_size": 64},
        {"host_cache": {"ratio": 2.0, "load_tokens_per_s": 50000.0}},
        {"speculative_algorithm": "EAGLE", "speculative_num_steps": 2},
    ],
    ids=["plain", "pages and chunks", "mixed steps", "host memory", "drafts"],
)
@pytest.mark.parametrize("keep_s", [0.2, 1000.0])
def test_whatever_is_kept_every_request_is_served(scenario, keys, keep_s):
    """In a pool that holds a few conversations; the same with fast-forward as step by step."""
    policy = {"kind": "keeps:Keeps", "keep_s": keep_s}
    keys = {"max_total_tokens": 1600, "schedule_conservativeness": 0.3, **keys}
    top = {"acceptance": {"mean_length": 1.6}} if "speculative_algorithm" in keys else {}
    log = simulate_both_ways(scenario(AGENTS, top=top, schedule_policy=policy, **keys))
    assert set(log.requests.status) == {"finished"}


@pytest.mark.parametrize("answer", ["1.5", "-1", "None", "True"])
def test_time_that_is_none_is_one_line(scenario, answer):
    text = dedent(CLASS).replace("round(self.keep_s * 1e9)", answer)
    path = scenario({"kind": "talk:Conversation"}, text, schedule_policy="keeps:Keeps")
    with pytest.raises(InputError, match="keep_ns"):
        simulate_both_ways(path)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"sliding_window": 10, "page_size": 1}, "windows"),
        ({"max_mamba_cache_size": 40, "disable_radix_cache": False}, "states"),
    ],
)
def test_second_pools_are_not_simulated_with_kept_kv(scenario, keys, what):
    path = scenario({"kind": "talk:Conversation"}, schedule_policy="keeps:Keeps", **keys)
    with pytest.raises(InputError, match=f"keep_ns is not simulated with {what}"):
        simulate_both_ways(path)


def test_other_roles_are_not_simulated_with_kept_kv(scenario):
    pools = {"one": {"role": "prefill"}, "two": {"role": "decode"}}
    top = {"pools": pools, "transfer": {"bandwidth_gb_s": 1, "latency_s": 0}, "model": "tiny"}
    path = scenario({"kind": "talk:Conversation"}, top=top, schedule_policy="keeps:Keeps")
    with pytest.raises(InputError, match="keep_ns is not simulated with servers of role prefill"):
        simulate_both_ways(path)
