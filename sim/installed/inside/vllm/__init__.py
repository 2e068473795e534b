"""VLLM's own scheduler, of any version."""
