"""Runs batches through the model: eagerly, or as CUDA graphs, on a warm device."""
