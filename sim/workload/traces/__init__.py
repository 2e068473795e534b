"""Readers of recorded traces. The command line loads this module for the names of the formats."""

from typing import Literal, get_args

TraceFormat = Literal[
    "mooncake",
    "azure",
    "servetwin",
    "autobench",
    "burstgpt",
    "bailian",
    "sharegpt",
    "lmsys",
    "weka",
]
FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)
