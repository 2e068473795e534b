"""The prefix cache: a radix tree of KV pages, and what is evicted from it first."""
