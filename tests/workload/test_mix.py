"""Several tenants at once."""

import pytest
from pydantic import ValidationError

CONSTANT = {"kind": "constant", "value": 100}
CHAT = {
    "kind": "synthetic",
    "num_requests": 4,
    "arrivals": {"kind": "constant", "rate_rps": 2},
    "prompt_tokens": CONSTANT,
    "output_tokens": {"kind": "geometric", "mean": 30},
    "system_prompt_tokens": 40,
}
BATCH = CHAT | {"num_requests": 2, "arrivals": {"kind": "constant", "rate_rps": 1}}
CLIENTS = {
    "kind": "clients",
    "clients": 3,
    "requests_per_client": 2,
    "think_s": {"kind": "constant", "value": 1},
    "prompt_tokens": CONSTANT,
    "output_tokens": CONSTANT,
}


def mix(**parts):
    parts = [{"tenant": tenant, "workload": section} for tenant, section in parts.items()]
    return {"kind": "mix", "parts": parts}


def requests_of(workload):
    turns = [turn.request for client in workload.clients for turn in client]
    return [*workload.arrivals(), *turns]


def seeds_of(request):
    prompt = request.spec.prompt
    seeds = {seed for seed, _ in prompt.segments} if hasattr(prompt, "segments") else set()
    return seeds | {request.script.seed}


def test_mix_merges_by_time_and_ties_keep_the_order_of_parts(build):
    """Every 500 ms a chat request, every second a batch request."""
    arrivals = [
        (request.spec.arrival_ns // 10**6, request.spec.rid, request.spec.tenant)
        for request in build(mix(chat=CHAT, batch=BATCH)).arrivals()
    ]
    assert arrivals == [
        (0, "chat-0", "chat"),
        (0, "batch-0", "batch"),
        (500, "chat-1", "chat"),
        (1000, "chat-2", "chat"),
        (1000, "batch-1", "batch"),
        (1500, "chat-3", "chat"),
    ]


def test_mix_keeps_the_sessions_of_its_parts_apart(build):
    """Two parts number their clients alike; who has no session gets none."""
    requests = requests_of(build(mix(one=CLIENTS, two=CLIENTS, chat=CHAT)))
    names = {request.spec.session for request in requests if request.spec.tenant != "chat"}
    assert names == {f"{tenant}-{client}" for tenant in ("one", "two") for client in range(3)}
    assert {r.spec.session for r in requests if r.spec.tenant == "chat"} == {""}


def test_mix_of_open_and_closed_loops_has_both(build):
    """Clients of all parts one after another, labelled too."""
    workload = build(mix(a=CLIENTS, chat=CHAT, b=CLIENTS | {"clients": 1}))
    assert workload.num_requests == 6 + 4 + 2
    assert len(list(workload.arrivals())) == 4
    clients = workload.clients
    first = [client[0].request.spec for client in clients]
    assert [(spec.rid, spec.tenant) for spec in first] == [
        *(("a-0-0", "a"), ("a-1-0", "a"), ("a-2-0", "a"), ("b-0-0", "b")),
    ]
    assert [turn.think_ns for turn in clients[3]] == [0, 1_000_000_000]


def test_mix_parts_share_no_stream(build):
    """Equal sections, but other texts and other answers."""
    workload = build(mix(chat=CHAT, batch=CHAT, clients=CLIENTS))
    seeds = {"chat": set(), "batch": set(), "clients": set()}
    for request in requests_of(workload):
        seeds[request.spec.tenant] |= seeds_of(request)
    assert len(set.union(*seeds.values())) == sum(map(len, seeds.values()))


def test_mix_parts_have_random_streams_of_their_own(build):
    """Equal sections draw differently; a part draws the same whoever stands beside it."""
    by_tenant = {}
    for request in requests_of(build(mix(chat=CHAT, batch=CHAT))):
        by_tenant.setdefault(request.spec.tenant, []).append(request.script.num_tokens)
    assert by_tenant["chat"] != by_tenant["batch"]
    other = requests_of(build(mix(new=CLIENTS, chat=CHAT)))
    assert [r.script.num_tokens for r in other if r.spec.tenant == "chat"] == by_tenant["chat"]


def test_mix_of_the_same_trace_twice_shares_no_block(build, tmp_path):
    """Block ids mean something within their file only; there they keep their meaning."""
    rows = [
        f'{{"timestamp": {t}, "input_length": 600, "output_length": 5, "hash_ids": [7, {t}]}}\n'
        for t in (0, 1)
    ]
    (tmp_path / "t").write_text("".join(rows))
    trace = {"kind": "trace", "format": "mooncake", "path": "t"}
    blocks = {"a": [], "b": []}
    for request in build(mix(a=trace, b=trace)).arrivals():
        blocks[request.spec.tenant].append(request.spec.prompt.block_ids.tolist())
    for first, second in blocks.values():
        assert first[0] == second[0]
        assert first[1] != second[1]
    used = {tenant: {i for row in rows for i in row} for tenant, rows in blocks.items()}
    assert not used["a"] & used["b"]


def test_mix_of_own_traces_keeps_quoted_answers_and_shares_nothing_else(build, tmp_path):
    """Stream seeds are renamed per part, prompts and answers alike."""
    rows = (
        '{"arrival": 0, "segments": [[7, 50]], "output_len": 9, "output_seed": 8}\n'
        '{"arrival": 1, "segments": [[7, 50], [8, 8], [9, 3]], "output_len": 9}\n'
    )
    (tmp_path / "t").write_text(rows)
    trace = {"kind": "trace", "format": "servetwin", "path": "t"}
    seeds = {"a": set(), "b": set()}
    prompts = {"a": [], "b": []}
    for request in build(mix(a=trace, b=trace, chat=CHAT)).arrivals():
        if request.spec.tenant != "chat":
            seeds[request.spec.tenant] |= seeds_of(request)
            prompts[request.spec.tenant].append(request)
    assert not seeds["a"] & seeds["b"]
    for first, second in prompts.values():
        quoted = [*first.spec.prompt.token_ids(), *first.script.token_ids(8)]
        assert second.spec.prompt.token_ids()[:58].tolist() == quoted


# (section, what the error says)
BAD = [
    (mix(), "at least 1 item"),
    (
        {"kind": "mix", "parts": [{"tenant": "a", "workload": CHAT}] * 2},
        "two parts have the same tenant",
    ),
    (mix(**{"a": CHAT, "a-1": CHAT}), "tenants 'a' and 'a-1' could give equal request ids"),
    (
        mix(a=CHAT | {"tenant": "b"}),
        "the workload of a part must not name a tenant: the part names it",
    ),
    (mix(a=mix(b=CHAT)), "'mix'"),
    (mix(**{"": CHAT}), "at least 1 character"),
]


@pytest.mark.parametrize(("section", "reason"), BAD)
def test_mix_that_could_confuse_tenants_is_refused(build, section, reason):
    """No parts, equal or ambiguous names, mixes of mixes."""
    with pytest.raises(ValidationError, match=reason):
        build(section)
