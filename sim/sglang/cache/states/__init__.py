"""The part of the KV memory for state-space and linear attention layers."""
