"""What a run log says in numbers; `sim.metrics.registry` says what each number is. numpy only."""
