"""The part of the KV memory for layers with a sliding window."""
