"""The real runner: the simulator's schedulers in front of a model on a CPU or a GPU."""
