"""How an SGLang server drafts: what `speculative_algorithm` asks of the scheduler.

SGLang 0.5.23: arg_groups/speculative_hook.py (`_handle_eagle_family`, `_handle_ngram`),
mem_cache/allocation_sizing.py (`get_alloc_len_per_decode`, `get_alloc_reserve_per_decode`) and
speculative/spec_info.py (`is_eagle`, `supports_mixed_chunk`).
"""

from typing import Final

ALGORITHMS: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
# Their drafters read the model's hidden states.
_EAGLE = ("EAGLE", "EAGLE3", "NEXTN")
# What SGLang chooses for most models, and for n-grams.
DEFAULT_STEPS = 3
DEFAULT_NGRAM_TOKENS = 12
DEFAULT_MAX_RUNNING = 48


def compares_pairs(algorithm: str | None) -> bool:
    """Whether a cached token is found only if the next one is equal, too."""
    return algorithm in _EAGLE


def mixes(algorithm: str | None) -> bool:
    """Whether `enable_mixed_chunk` has an effect: with other algorithms SGLang turns it off."""
    return algorithm in _EAGLE


def places_per_step(num_steps: int, num_verified: int) -> int:
    """Places for KV that a step may need.

    Args:
        num_steps: passes of the drafter.
        num_verified: tokens of a row that the model verifies, its last known one included.
    """
    return max(num_steps, num_verified)
