"""KV as vLLM keeps it: numbered blocks, a queue of free ones, contents found by their hashes."""
