"""Family `sglang`: everything that is about SGLang 0.5.23; rules in docs/sglang.md."""
