"""Routers: which replica an arriving request goes to; docs/how-to/routers.md has the rules."""
