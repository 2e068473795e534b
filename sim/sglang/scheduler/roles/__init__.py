"""Servers that only prefill or only decode: their queues, and how the KV gets across."""
