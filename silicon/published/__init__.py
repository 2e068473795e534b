"""Results that others published, beside their simulation (docs/published.md)."""
