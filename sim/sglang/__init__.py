"""Family `sglang`: all code about SGLang 0.5.23; rules: docs/explanation/sglang.md."""
