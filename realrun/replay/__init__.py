"""Sends a workload to any server with OpenAI's interface, and keeps what came back when."""
