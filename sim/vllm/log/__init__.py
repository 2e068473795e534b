"""Reads the text log of a vLLM server: `VllmLog` in `lines.py`."""
