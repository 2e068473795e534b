"""Random speculative decoding, for property tests."""

from dataclasses import replace

from hypothesis import strategies as st

from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.sglang.config import SchedulerConfig, mixes
from sim.sglang.version_rules import NEWEST

METHODS = ("ngram", "eagle", "mtp", "draft_model")
_SGLANG = {"ngram": "NGRAM", "eagle": "EAGLE", "mtp": "NEXTN", "draft_model": "STANDALONE"}


@st.composite
def speculations(draw: st.DrawFn, methods: tuple[str, ...] = METHODS) -> Speculation:
    num_drafts = draw(st.integers(1, 5))
    shares = draw(st.lists(st.sampled_from((0.0, 0.5, 0.9, 1.0)), min_size=num_drafts))
    method = draw(st.sampled_from(methods))
    nothing = draw(st.sampled_from((0.0, 0.3, 1.0)))
    proposed = [nothing, *[(1 - nothing) / num_drafts] * num_drafts]
    acceptance = AcceptanceByPosition(shares[:num_drafts], proposed if method == "ngram" else ())
    return Speculation(method, num_drafts, acceptance)


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
