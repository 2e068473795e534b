"""Power of a server, from what `nvidia-smi` or DCGM read beside its steps."""
