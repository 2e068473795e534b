"""Reads what SGLang's benchmark, request log and crash dump say of a real run."""
