"""Many runs of one scenario: sweeps and searches, where they run, and how results are stored."""
