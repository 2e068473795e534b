"""Hostile servers for our clients, and hostile clients for our servers."""
