"""Conversations: each prompt contains the whole conversation before it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.core.errors import InputError
from sim.workload.config import SessionsConfig
from sim.workload.kinds.build import build_workload
from sim.workload.prompts import TurnPrompts
from tests.support.facts import facts_of

SECTION = {
    "kind": "sessions",
    "sessions": 20,
    "arrivals": {"kind": "poisson", "rate_rps": 5},
    "turns": {"kind": "uniform", "min": 1, "max": 6},
    "user_tokens": {"kind": "geometric", "mean": 30},
    "output_tokens": {"kind": "geometric", "mean": 4},
    "think_s": {"kind": "exponential", "mean": 2.0},
    "system_prompts": {"count": 3, "tokens": 25},
}
OPEN = SECTION | {"closed_loop": False}


def sessions_of(workload):
    """The turns' requests of every session, open loop or closed."""
    clients = [[turn.request for turn in client] for client in workload.clients]
    if clients:
        return clients
    by_session = {}
    for request in workload.arrivals():
        by_session.setdefault(request.spec.rid.split("-")[0], []).append(request)
    return list(by_session.values())


def quoted(request):
    """The answer as later prompts quote it: without its end token, or cut off at the limit."""
    limit, length = request.spec.max_new_tokens, request.script.num_tokens
    return request.script.token_ids(limit if limit < length else length - 1).tolist()


@given(seed=st.integers(0, 10**6), limit=st.sampled_from([None, 3, 100]), closed=st.booleans())
def test_sessions_prompt_begins_with_the_last_prompt_and_its_answer(
    tmp_path_factory, seed, limit, closed
):
    """Ids of prompt k + 1 = ids of prompt k, then the answer's without the last, then new text."""
    section = SECTION | {"sessions": 4, "max_new_tokens": limit, "closed_loop": closed}
    config = TypeAdapter(SessionsConfig).validate_python(section)
    workload = build_workload(config, seed=seed, base_dir=tmp_path_factory.getbasetemp())
    for session in sessions_of(workload):
        for before, after in pairwise(session):
            begin = before.spec.prompt.token_ids().tolist() + quoted(before)
            ids = after.spec.prompt.token_ids().tolist()
            assert ids[: len(begin)] == begin
            assert len(ids) == len(after.spec.prompt) > len(begin)


def test_sessions_answer_of_one_token_leaves_nothing_to_quote(build):
    """The end token alone: the next prompt is the last one and the user's text."""
    workload = build(SECTION | {"output_tokens": {"kind": "constant", "value": 1}})
    for session in sessions_of(workload):
        for turn, request in enumerate(session):
            assert len(request.spec.prompt.segments) == 1 + (turn + 1)


def test_sessions_turns_name_their_session(build):
    """All turns of one the same, no two sessions the same."""
    names = [{turn.spec.session for turn in session} for session in sessions_of(build(SECTION))]
    assert {len(name) for name in names} == {1}
    assert len(set.union(*names)) == 20


def test_sessions_draw_one_of_the_system_prompts(build):
    """Three different ones, all in use, 25 tokens each; nothing else is shared."""
    sessions = sessions_of(build(SECTION))
    first = [session[0].spec.prompt.segments for session in sessions]
    assert {system[1] for system, _ in first} == {25}
    assert len({system for system, _ in first}) == 3
    assert len({user[0] for _, user in first}) == 20


def test_sessions_without_system_prompts_begin_with_the_user(build):
    """One segment in a first prompt."""
    sessions = sessions_of(build(SECTION | {"system_prompts": None}))
    assert {len(session[0].spec.prompt.segments) for session in sessions} == {1}


def test_sessions_closed_loop_think_before_every_turn_but_the_first(build):
    """A first turn waits for its session's arrival; there are no open-loop requests."""
    section = SECTION | {
        "arrivals": {"kind": "constant", "rate_rps": 2},
        "think_s": {"kind": "constant", "value": 1.5},
    }
    workload = build(section)
    assert list(workload.arrivals()) == []
    thinking = [[turn.think_ns for turn in client] for client in workload.clients]
    assert [turns[0] for turns in thinking] == [i * 500_000_000 for i in range(20)]
    assert {think for turns in thinking for think in turns[1:]} == {1_500_000_000}
    assert workload.num_requests == sum(len(turns) for turns in thinking)


def test_sessions_of_clients_follow_one_another(build):
    """Three share 20 in order; all start at time 0, and none thinks between two sessions."""
    section = SECTION | {"clients": 3, "think_s": {"kind": "constant", "value": 1.5}}
    del section["arrivals"]
    clients = [list(turns) for turns in build(section).clients]
    held = [list(dict.fromkeys(t.request.spec.session for t in turns)) for turns in clients]
    assert held == [[str(n) for n in range(*ends)] for ends in ((0, 6), (6, 13), (13, 20))]
    for turn in (turn for turns in clients for turn in turns):
        is_first = turn.request.spec.rid.endswith("-0")
        assert turn.think_ns == (0 if is_first else 1_500_000_000)


def test_sessions_open_loop_send_at_start_plus_thinking(build):
    """Turn k comes k think times after its session's start; sessions interleave by time."""
    section = OPEN | {
        "arrivals": {"kind": "constant", "rate_rps": 2},
        "think_s": {"kind": "constant", "value": 1.5},
    }
    workload = build(section)
    assert list(workload.clients) == []
    times = [request.spec.arrival_ns for request in workload.arrivals()]
    assert times == sorted(times)
    for request in workload.arrivals():
        session, turn = map(int, request.spec.rid.split("-"))
        assert request.spec.arrival_ns == session * 500_000_000 + turn * 1_500_000_000


def test_sessions_open_and_closed_loop_ask_the_same(build):
    """How turns are timed changes no prompt and no answer."""
    closed = {r.spec.rid: r for session in sessions_of(build(SECTION)) for r in session}
    for request in build(OPEN).arrivals():
        twin = closed.pop(request.spec.rid)
        assert twin.spec.prompt.segments == request.spec.prompt.segments
        assert facts_of(twin.script) == facts_of(request.script)
    assert not closed


def test_sessions_turns_follow_their_distribution(build):
    """Turns 1 to 6: mean 3.5."""
    workload = build(SECTION | {"sessions": 2000})
    assert workload.num_requests / 2000 == pytest.approx(3.5, rel=0.03)


def test_sessions_are_the_same_when_iterated_again(build, facts):
    """Open loop and closed."""
    for section in (SECTION, OPEN):
        workload = build(section)
        assert facts(workload) == facts(workload) == facts(build(section))


# (options, the error line)
BAD = [
    (
        {"turns": {"kind": "constant", "value": 10**7}, "sessions": 11},
        "workload.turns: drew 110000000 turns in all, above 100000000",
    ),
    (
        {
            "turns": {"kind": "constant", "value": 3},
            "user_tokens": {"kind": "constant", "value": 4_000_000},
            "output_tokens": {"kind": "constant", "value": 1},
            "system_prompts": None,
        },
        "workload: a prompt has 12000000 tokens, above 10000000",
    ),
    (
        {
            "closed_loop": False,
            "turns": {"kind": "constant", "value": 6},
            "think_s": {"kind": "constant", "value": 1e9},
        },
        "workload: a session's think times add up to more than the clock can hold",
    ),
]

# Options, and what is wrong with them.
BAD_STARTS = [
    ({"arrivals": None}, "needs one of arrivals, clients, at_a_time"),
    ({"clients": 2}, "arrivals and clients exclude each other"),
    ({"arrivals": None, "at_a_time": 2, "clients": 2}, "clients and at_a_time exclude each other"),
    ({"arrivals": None, "at_a_time": 2, "closed_loop": False}, "goes only with closed_loop"),
    ({"arrivals": None, "clients": 2, "closed_loop": False}, "clients goes only with closed_loop"),
    ({"arrivals": None, "clients": 21}, "more clients than sessions"),
]


@pytest.mark.parametrize(("options", "line"), BAD)
def test_sessions_that_grow_absurd_are_refused(build, options, line):
    """Too many turns, too long a conversation, too long a wait."""
    with pytest.raises(InputError) as caught:
        build(SECTION | options)
    assert str(caught.value) == line


@pytest.mark.parametrize(("options", "words"), BAD_STARTS)
def test_sessions_start_by_arrivals_or_by_clients(options, words):
    """By one of the two; clients wait for answers, and each has a session."""
    with pytest.raises(ValidationError, match=words):
        TypeAdapter(SessionsConfig).validate_python(SECTION | options)


def test_a_turns_prompt_is_the_same_whichever_prompts_were_made_before():
    """In order, each shares what the one before it said; alone, each is made from its beginning."""
    columns = {
        "system_tokens": np.array([3, 3, 3, 3, 0, 0]),
        "system_seeds": np.array([1, 1, 1, 1, 2, 2]),
        "summary": np.array([-1, -1, -1, 2, -1, -1]),
        "begin": np.array([0, 0, 0, 3, 4, 4]),
        "own_tokens": np.array([5, 1, 2, 4, 7, 6]),
        "quoted_tokens": np.array([2, 0, 3, 1, 0, 1]),
    }
    expected = [
        ((1, 3), (10, 5)),
        ((1, 3), (10, 5), (20, 2), (11, 1)),
        ((1, 3), (10, 5), (20, 2), (11, 1), (12, 2)),
        ((1, 3), (22, 3), (13, 4)),
        ((14, 7),),
        ((14, 7), (15, 6)),
    ]
    for order in (range(6), range(5, -1, -1), [1, 0, 1, 2, 4, 2, 5, 3], [0, 4, 1, 5, 2, 3]):
        prompts = TurnPrompts(**columns, own_seed=10, output_seed=20)
        made = {row: prompts.prompt(row) for row in order}
        assert {row: prompt.segments for row, prompt in made.items()} == dict(enumerate(expected))
    assert [len(prompt) for _, prompt in sorted(made.items())] == prompts.num_tokens.tolist()
    # What they share is the same object, and takes memory once.
    assert made[2].segments[1] is made[0].segments[1]
