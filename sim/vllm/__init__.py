"""Family `vllm`: all code about vLLM 0.19.0 (its v1 engine); rules: docs/explanation/vllm.md."""
