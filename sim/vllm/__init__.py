"""Family `vllm`: all code about vLLM's v1 engine; rules: docs/explanation/vllm.md."""
