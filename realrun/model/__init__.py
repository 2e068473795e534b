"""The model on the device: its sizes, weights, forward passes over KV pages, and KV tensors."""
