"""Facts every other package speaks in: requests, tokens, batches, errors."""
