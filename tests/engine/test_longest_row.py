"""The running batch knows its longest and its shortest row, whichever rows join and leave."""

import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.core.request import RequestSpec
from sim.core.tokens import ArrayPrompt
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch

_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(1, 40)),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 5)),
    ),
    max_size=60,
)


def _row(number: int, seq_len: int) -> Request:
    prompt = ArrayPrompt(np.arange(seq_len))
    spec = RequestSpec(str(number), 0, prompt, 1_000)
    row = Request(spec, limit=1_000)
    row.seq_len = seq_len
    return row


@given(_MOVES)
def test_longest_and_shortest_row_are_those_of_all(moves):
    running = RunningBatch(page_size=4)
    for number, (move, value) in enumerate(moves):
        if move == "join":
            running.append([_row(number, value)])
        elif move == "leave" and len(running):
            row = running.requests[value % len(running)]
            running.remove([row])
            if value % 2:
                running.append([row])
        elif move == "step":
            running.begin_steps(value)
        lengths = [row.seq_len for row in running.requests]
        assert running.max_seq_len == max(lengths, default=0)
        assert running.min_seq_len == min(lengths, default=0)


def test_rows_that_left_are_not_kept():
    """Also if somebody asks for the longest row alone: a run has millions of rows."""
    running = RunningBatch(page_size=4)
    prompts = []
    for number in range(3_000):
        row = _row(number, 1 + number % 50)
        running.append([row])
        assert running.max_seq_len == row.seq_len
        running.remove([row])
        prompts.append(weakref.ref(row.spec.prompt.ids))
    assert sum(prompt() is not None for prompt in prompts) < 1_000
