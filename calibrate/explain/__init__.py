"""Why two runs differ: each difference between them is put into a simulation, one after another."""
