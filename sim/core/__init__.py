"""What all other packages share: requests, tokens, batches, errors, files."""
