"""Reads the text log of an SGLang server: `SglangLog` in `lines.py`."""
