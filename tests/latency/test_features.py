"""The numbers that latency models get for a batch."""

from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.latency.features import StepFeatures, step_features
from tests.support.facts import facts_of


def test_features_mixed_batch_sums_its_rows():
    """Two prefill rows (one with a cached prefix) and three decode rows with 60 tokens."""
    batch = Batch(
        mode=ForwardMode.MIXED,
        prefill=(PrefillRow("a", 0, 10, 0, True), PrefillRow("b", 100, 4, 0, False)),
        decode_rids=("c", "d", "e"),
        num_context_tokens=10 + 104 + 60,
        num_decode_context_tokens=60,
        max_decode_context_tokens=30,
        min_decode_context_tokens=12,
    )
    features = StepFeatures(
        mode=ForwardMode.MIXED,
        num_prefill_tokens=14,
        prefill_attention=10 * 10 + 4 * (200 + 4),
        num_prefill_rows=2,
        num_decode_rows=3,
        num_decode_context_tokens=60,
        num_context_tokens=174,
        max_decode_context_tokens=30,
        min_decode_context_tokens=12,
        prefill_rows=((0, 10), (100, 4)),
    )
    assert facts_of(step_features(batch)) == facts_of(features)
