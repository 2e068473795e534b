"""How long a step takes: features, models, hardware and model shapes."""
