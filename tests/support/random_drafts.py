"""Random speculative decoding, for property tests."""

from dataclasses import replace

from hypothesis import strategies as st

from sim.engine.acceptance import (
    Acceptance,
    AcceptanceByPosition,
    RecordedAcceptance,
    Speculation,
)
from sim.sglang.config import SchedulerConfig, mixes
from sim.sglang.version_rules import NEWEST

METHODS = ("ngram", "eagle", "mtp", "draft_model")
_SGLANG = {"ngram": "NGRAM", "eagle": "EAGLE", "mtp": "NEXTN", "draft_model": "STANDALONE"}


@st.composite
def speculations(draw: st.DrawFn, methods: tuple[str, ...] = METHODS) -> Speculation:
    num_drafts, method = draw(st.integers(1, 5)), draw(st.sampled_from(methods))
    kinds = draw(st.sampled_from((_by_position, _recorded)))
    return Speculation(method, num_drafts, draw(kinds(num_drafts, looks_up=method == "ngram")))


@st.composite
def _by_position(draw: st.DrawFn, num_drafts: int, *, looks_up: bool) -> Acceptance:
    shares = draw(st.lists(st.sampled_from((0.0, 0.5, 0.9, 1.0)), min_size=num_drafts))
    nothing = draw(st.sampled_from((0.0, 0.3, 1.0)))
    proposed = [nothing, *[(1 - nothing) / num_drafts] * num_drafts]
    return AcceptanceByPosition(shares[:num_drafts], proposed if looks_up else ())


@st.composite
def _recorded(draw: st.DrawFn, num_drafts: int, *, looks_up: bool) -> Acceptance:
    """Lists of two requests; all others take one of the two."""
    counts = st.lists(st.integers(0, num_drafts), min_size=1, max_size=8)
    accepted = {rid: draw(counts) for rid in ("r0", "r1")}
    found = {
        rid: [draw(st.integers(count, num_drafts)) for count in each]
        for rid, each in accepted.items()
    }
    return RecordedAcceptance(accepted, found if looks_up else None)


def sglang_with_drafts(config: SchedulerConfig, speculation: Speculation) -> SchedulerConfig:
    """The configuration with speculative decoding."""
    algorithm = _SGLANG[speculation.method]
    return replace(
        config,
        version=NEWEST,
        speculation=speculation,
        speculative_algorithm=algorithm,
        speculative_num_steps=speculation.num_tokens,
        speculative_num_draft_tokens=1 + speculation.num_tokens,
        enable_mixed_chunk=config.enable_mixed_chunk and mixes(algorithm),
    )
