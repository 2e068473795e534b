"""Traffic: synthetic requests, sessions, clients, recorded traces, imported results.

Here are the names of formats, for the command line, and limits of input values. A larger value must
be a mistake.
"""

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

MAX_REQUESTS = 10**8
MAX_TOKENS = 10**7
MAX_OUTPUT_FACTOR = 1000
MAX_RATE_RPS = 10**6
MAX_CV = 100
# The value in a column of priorities for a request without priority.
NO_PRIORITY = -(1 << 63)
# The value in a column of times for a client that never gives up.
NEVER_GIVES_UP_NS = -1
