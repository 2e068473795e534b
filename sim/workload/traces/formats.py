"""The names of the formats of traces. The command line loads this module for its help."""

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
