"""Which requests a server takes at all, and how many tokens they may generate (rule 1)."""

from sim.sglang.config import SchedulerConfig

# SGLang 0.5.23 keeps a few tokens of the context free.
_SPARE_CONTEXT_TOKENS = 5


def token_limit(config: SchedulerConfig, prompt_len: int, max_new_tokens: int) -> int:
    """`max_new_tokens` clipped to context and pool; 0 or less: the request is rejected."""
    pool_tokens, page_size = config.pool_tokens, config.page_size
    longest = min(config.context_length - 1, pool_tokens - 1)
    if prompt_len >= longest - _SPARE_CONTEXT_TOKENS:
        return 0
    paged_prompt = -(-prompt_len // page_size) * page_size
    return min(max_new_tokens, longest - prompt_len - 1, pool_tokens - paged_prompt - page_size - 1)
