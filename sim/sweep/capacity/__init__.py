"""Searches for the cheapest deployments that meet the SLO of a scenario."""
