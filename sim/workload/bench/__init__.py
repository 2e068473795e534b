"""The requests of serving benchmarks, exactly as their programs draw and send them."""
