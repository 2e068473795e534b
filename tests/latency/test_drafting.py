"""Steps with draft tokens in kinds that were measured without them: profiles and layer tables."""

from pathlib import Path

import pytest

from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.core.errors import InputError
from sim.latency.config import LayersLatencyConfig, ProfileLatencyConfig
from sim.latency.features import step_features
from sim.latency.kinds.build import ServedBy, build_latency
from sim.latency.profile.model import ProfileLatency

PREFILL = (PrefillRow("p", 10, 30, 0, True),)


def step(contexts, drafts, prefill=()):
    """A step of decode rows with these contexts and draft tokens."""
    total = sum(contexts)
    mode = ForwardMode.MIXED if prefill else ForwardMode.DECODE
    context = total + sum(row.prefix_len + row.extend_len for row in prefill)
    rids = tuple(f"r{i}" for i in range(len(contexts)))
    return step_features(Batch(mode, prefill, rids, context, total, drafts=drafts))


def as_prefill_rows(contexts, drafts, prefill=()):
    """The same tokens as ends of prompts."""
    rows = [
        PrefillRow(f"r{i}", context - count - 1, 1 + count, 0, True)
        for i, (context, count) in enumerate(zip(contexts, drafts, strict=True))
    ]
    context = sum(contexts) + sum(row.prefix_len + row.extend_len for row in prefill)
    return step_features(Batch(ForwardMode.EXTEND, (*prefill, *rows), (), context, 0))


def built(config, **server):
    return build_latency(
        config, model=None, hardware=None, base_dir=Path(), server=ServedBy(**server)
    )


@pytest.mark.parametrize("prefill", [(), PREFILL])
def test_profile_times_a_row_with_drafts_as_the_end_of_a_prompt(prefill):
    """Rows of one length: the very time of the prefill step; then the passes of the drafter."""
    config = ProfileLatencyConfig(kind="profile", path="example/tiny-cpu")
    plain = ProfileLatency.from_file("example/tiny-cpu", base_dir=Path())
    verifying = step((50, 50, 50), (3, 3, 3), prefill)
    model = built(config, num_drafts=3)
    time = model.step_ns(verifying)
    assert time == plain.step_ns(as_prefill_rows((50, 50, 50), (3, 3, 3), prefill))
    drafting = built(config.model_copy(update={"drafter_share": 0.25}), num_drafts=3)
    alone = plain.step_ns(step((50, 50, 50), ()))
    more_ns = drafting.step_ns(verifying).device_ns - time.device_ns
    assert more_ns == round(0.75 * alone.device_ns)
    model.consume(verifying, 1)
    assert model.left_range().num_steps == 1
    assert model.step_ns(step((50,), (0,))) == plain.step_ns(step((50,), ()))


def test_layer_table_times_matrices_by_tokens_and_attention_by_rows():
    """A context is read once: drafts add the same time at any context, less than rows would."""
    table = Path(__file__).parents[2] / "data" / "layers" / "rtxpro6000-llama-3.1-8b"
    config = LayersLatencyConfig(kind="layers", path=str(table))
    model = built(config, num_drafts=3, drafter="nothing")
    added_ns = [
        model.step_ns(step((context,) * 4, (3,) * 4)).device_ns
        - model.step_ns(step((context,) * 4, (0,) * 4)).device_ns
        for context in (100, 1_000, 2_000)
    ]
    assert max(added_ns) - min(added_ns) <= 2
    more_rows = model.step_ns(step((2_000,) * 16, (0,) * 16)).device_ns
    assert 0 < added_ns[2] < more_rows - model.step_ns(step((2_000,) * 4, (0,) * 4)).device_ns
    with pytest.raises(InputError, match="is required with this method"):
        built(config, num_drafts=3, drafter="layer")
