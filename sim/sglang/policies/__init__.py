"""The order in which SGLang considers waiting requests."""
