"""What a method of drafting asks of vLLM's scheduler.

vLLM 0.19.0: `Scheduler.__init__` (v1/core/sched/scheduler.py), `_set_max_num_scheduled_tokens`
(config/vllm.py), `max_num_new_slots_for_drafting` (config/speculative.py). vLLM 0.33.0:
`num_lookahead_tokens` and `num_hash_lookahead_tokens` (config/vllm.py).
"""

from dataclasses import dataclass
from typing import Final

from sim.engine.partner import BOTH
from sim.vllm.config import VllmConfig

# They read the target model's hidden states.
EAGLE_METHODS: Final = ("eagle", "eagle3", "mtp")


@dataclass(frozen=True, slots=True)
class Drafting:
    """What a method of drafting asks for.

    Attributes:
        num_tokens: draft tokens of a row in a step.
        lookahead: places for the drafter's own KV behind the tokens of a step.
        step_tokens: token budget of a step.
        row_slots: what each row takes of the budget besides its tokens.
        drops_last_block: the last block that a request finds is computed again, because the drafter
            lacks the hidden states to go on from it. Servers with a KV connector do so in all
            versions (`num_hash_lookahead_tokens`).
        looks_behind: among groups of layers, the block that is left out may lie behind the prefix
            that all of them share (`find_longest_cache_hit` of v1/core/kv_cache_coordinator.py).
        hash_lookahead: tokens behind a block that a request must share to find the block.
    """

    num_tokens: int
    lookahead: int
    step_tokens: int
    row_slots: int
    drops_last_block: bool
    looks_behind: bool
    hash_lookahead: int


def drafting_of(config: VllmConfig) -> Drafting:
    """What the method of a configuration asks for; without speculative decoding, nothing."""
    speculation = config.speculation
    method, num_tokens = (speculation.method, speculation.num_tokens) if speculation else ("", 0)
    is_eagle, has_model = method in EAGLE_METHODS, method == "draft_model"
    by_row = config.rules.slots_by_row
    hashes_ahead = config.rules.hashes_ahead and config.role == BOTH
    step_tokens = config.max_num_batched_tokens
    if has_model and not by_row:
        step_tokens -= config.max_num_seqs
    return Drafting(
        num_tokens=num_tokens,
        lookahead=num_tokens if is_eagle or has_model else 0,
        step_tokens=step_tokens,
        row_slots=int(has_model and by_row),
        drops_last_block=is_eagle and not hashes_ahead,
        looks_behind=config.rules.hashes_ahead,
        hash_lookahead=int(is_eagle and hashes_ahead and config.enable_prefix_caching),
    )
