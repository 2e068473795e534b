"""The scheduler of vLLM v1, as of version 0.19.0; rules by number: docs/explanation/vllm.md."""
