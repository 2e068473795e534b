"""Which cause is named first for which signs."""

from dataclasses import replace

import pytest

from calibrate.watch.causes import Evidence, Signs, likely_causes

USUAL = Signs(long_gaps=1.0, prefill_ms=50.0, queue_ms=1.0)
STALLS = {"long_gaps": 40.0, "long_s": 40.0, "late_s": 50.0}
CALM = Evidence(
    score={"ttft_ms": 0.0, "tpot_ms": 0.0, "waiting": 0.0, "kv_share_pct": 0.0},
    ratio={"ttft_ms": 1.0, "tpot_ms": 1.0, "waiting": 1.0, "kv_share_pct": 1.0},
    ttft_ms=(60.0, 60.0),
    signs=USUAL,
    usual=USUAL,
    changes=(),
)


def evidence(signs=None, changes=(), means=(60.0, 60.0), **scores):
    return replace(
        CALM,
        score={**CALM.score, **scores},
        signs=replace(USUAL, **(signs or {})),
        changes=changes,
        ttft_ms=means,
    )


@pytest.mark.parametrize(
    ("found", "first"),
    [
        (evidence(tpot_ms=5.0, ttft_ms=3.0), "slower steps"),
        (evidence(tpot_ms=5.0, ttft_ms=9.0, signs=STALLS), "stalls: 39 tokens a window"),
        (evidence(tpot_ms=5.0, signs={**STALLS, "late_s": 200.0}), "slower steps"),
        (evidence(tpot_ms=3.0, signs={"stalled_s": 2.0}), "stalls: no token for 2.00 s a window"),
        (replace(evidence(tpot_ms=3.0), late_answer_s=1.5), "stalls: it took 1.5 s to answer"),
        (evidence(ttft_ms=6.0, signs={"prefill_ms": 90.0}), "slower prefill: 50.00 → 90.00 ms"),
        (evidence(ttft_ms=6.0, signs={"prefill_ms": None}), "slower prefill, or a slow front end"),
        (evidence(means=(160.0, 60.0), ttft_ms=6.0), "the front end: TTFT is 100.0 ms longer"),
        (evidence(waiting=6.0), "requests wait that should not"),
        (evidence(kv_share_pct=6.0, waiting=5.0), "smaller KV pool"),
        (evidence(tpot_ms=-5.0), "faster steps"),
        (evidence(ttft_ms=2.0, signs={"prefill_ms": 51.0, "queue_ms": 90.0, "preempted": 0.5}),
         "preemptions: 0.50 more"),
        (evidence(changes=("version 1 → 2",), tpot_ms=9.0),
         "another version or other settings: version 1 → 2"),
    ],
)  # fmt: skip
def test_the_likeliest_cause(found, first):
    assert likely_causes(found)[0].startswith(first)


def test_no_cause_is_named_without_a_sign():
    assert likely_causes(CALM) == []


def test_long_gaps_that_are_usual_are_no_stalls():
    """A server whose long prefills hold up others has such gaps always."""
    usual = replace(USUAL, long_gaps=30.0)
    found = replace(evidence(tpot_ms=3.0, signs={"long_gaps": 50.0}), usual=usual)
    assert likely_causes(found)[0].startswith("slower steps")
