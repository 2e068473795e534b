"""What runs in the environment of an engine: it imports the engine, and nothing else of ours."""
