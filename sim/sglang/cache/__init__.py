"""KV cache: pages, the radix tree over them, and who holds what."""
