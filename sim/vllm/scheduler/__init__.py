"""What a vLLM server decides at each step: running requests first, then waiting ones."""
