"""Routers: which replica an arriving request goes to; docs/routers.md has the rules."""
