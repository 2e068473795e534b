"""The part of the KV memory for a store below host memory."""
