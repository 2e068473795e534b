"""The `scheduler` section of a scenario with SGLang servers."""
