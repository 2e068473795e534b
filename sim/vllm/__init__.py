"""Family `vllm`: everything that is about vLLM 0.19.0 (its v1 engine); rules in docs/vllm.md."""
