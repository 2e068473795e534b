"""Many runs of one scenario: what to run, where, and what is kept of it."""
