"""Transfers of KV from one server to another, in simulated time."""
