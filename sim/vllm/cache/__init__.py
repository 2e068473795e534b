"""KV as vLLM keeps it: numbered blocks, a queue of the free ones, and hashes of the full ones."""
