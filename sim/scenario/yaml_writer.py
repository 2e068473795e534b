"""Scenarios as YAML text, for people to read."""

from typing import Any

import yaml

_WIDTH = 88


def yaml_text(data: Any) -> str:
    """JSON-like data as YAML: keys in the order given, innermost lists and mappings on one line."""
    text: str = yaml.safe_dump(
        data, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    return text
