"""The `scheduler` section of a scenario with `family: vllm`."""
