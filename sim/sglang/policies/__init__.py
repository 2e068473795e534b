"""Schedule policies: the order in which SGLang considers waiting requests."""
