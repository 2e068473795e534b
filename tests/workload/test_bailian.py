"""Alibaba's Qwen-Bailian traces."""

import numpy as np
import pytest


def row(chat, parent=-1, at=0.5, length=40, **fields):
    ids = list(range(-(-length // 16)))
    return {
        "chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": length,
        "output_length": 7, "type": "text", "turn": 1, "hash_ids": ids,
    } | fields  # fmt: skip


def test_bailian_reads_seconds_blocks_and_conversations(trace):
    """A follow-up's session is the first chat, though its own parent may be before the trace."""
    rows = [row(1), row(2, 1, 0.75, 64), row(3, 2, 1), row(9, 8, 1)]
    requests = list(trace("bailian", rows).arrivals())
    assert [r.spec.arrival_ns for r in requests] == [500_000_000, 750_000_000, 10**9, 10**9]
    assert [r.spec.session for r in requests] == ["1", "1", "1", "8"]
    short, long = (r.spec.prompt.token_ids() for r in requests[:2])
    assert np.array_equal(long[:40], short)


def test_bailian_partial_last_block_may_lack_its_id(trace):
    """Then its tokens are found by no other prompt."""
    one, other = trace("bailian", [row(1, hash_ids=[0, 1]), row(2, hash_ids=[0, 1])]).arrivals()
    same = one.spec.prompt.token_ids() == other.spec.prompt.token_ids()
    assert same.tolist() == [True] * 32 + [False] * 8


def test_bailian_rows_without_output_are_counted(trace):
    """They are no requests, but chats that others may follow."""
    workload = trace("bailian", [row(1, output_length=0), row(2, 1)])
    assert [r.spec.session for r in workload.arrivals()] == ["1"]
    assert workload.notes == ("1 row left out: no output",)


BAD = [
    (row(2, hash_ids=[1]), "hash_ids: 1 ids, but input_length / 16 rounded up is 3"),
    (row(2, at=0.4), "timestamp: is before the previous row's; rows must be in order of time"),
    (row(2, parent="1"), 'parent_chat_id: "1" is neither a chat nor -1'),
    (row(-1), "chat_id: -1 is below 0"),
    (row(2, output_length=-1), "output_length: -1 is below 0"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_bailian_bad_row_names_line_and_field(error_of, bad, reason):
    """Lines count from 1."""
    assert error_of("bailian", [row(1), bad]) == f"t:2: {reason}"
