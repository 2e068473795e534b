"""The forward passes of the runner's architectures, with few kernels for each layer."""
