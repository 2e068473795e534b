"""Launch commands of SGLang servers, written and read."""
