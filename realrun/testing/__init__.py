"""A GPU made of a CPU, to test what runs on a GPU where there is none."""
