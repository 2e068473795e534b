"""A scenario's `workload` section: one pydantic model for each kind of traffic."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.user.objects import OrUserClass, UserClass
from sim.validation import ByKind, KeysError, Printable, PrintableName, StrictModel
from sim.workload import MAX_REQUESTS, MAX_TOKENS, TraceFormat
from sim.workload.arrivals import Arrivals, ThinkTime
from sim.workload.bench_command import BenchConfig
from sim.workload.lengths import (
    Length,
    LengthDistribution,
    MaxNewTokens,
    PredictedOutput,
    Prefixes,
)


class GiveUp(StrictModel):
    """Clients that do not wait for the whole answer (docs/explanation/aborts.md)."""

    share: Annotated[float, Field(ge=0, le=1)]
    """The share of requests whose client gives up. Unit: share."""
    after_s: ThinkTime
    """Time from a request's arrival to the end of its client's patience. Unit: s."""


class CommonConfig(StrictModel):
    """Keys that every kind of traffic has."""

    tenant: Printable = ""
    """Name of the tenant that sends the requests. Metrics are also given for each tenant."""
    priority: Annotated[int, Field(ge=-(2**31) + 1, le=2**31 - 1)] | None = None
    """Priority of requests that have none of their own. Without it: they have none. Unit:
    priority."""
    max_new_tokens: MaxNewTokens | None = None
    """Each request's limit on its output. Without this key: the trace's limit, or the output length
    if the trace has no limits. Unit: tokens."""
    predicted_output: PredictedOutput | None = None
    """How each output length is guessed, for schedule policy `sjf`. Without it: no guess."""
    give_up: GiveUp | None = None
    """Some clients give up: their requests are aborted. Without it: those of a trace of format
    servetwin that say so, else none."""


DEFAULT_BLOCK_SIZE = 512
BAILIAN_BLOCK_SIZE = 16
DEFAULT_CHARACTERS_PER_TOKEN = 4.0

# Formats that have texts in place of token counts.
_TEXT = ("sharegpt", "lmsys")
# Keys that only some formats have, and which.
_FORMATS_OF_KEY: dict[str, tuple[str, ...]] = {
    "block_size": ("mooncake", "bailian"),
    "arrivals": (*_TEXT, "weka", "mooncake", "autobench"),
    "think_s": _TEXT,
    "max_turns": _TEXT,
    "tokenizer": _TEXT,
    "characters_per_token": _TEXT,
    "max_pause_s": ("mooncake", "weka"),
    "at_a_time": (*_TEXT, "mooncake", "weka"),
}
# Keys that change what the reader of a trace returns; with equal ones a file is read once.
READ_KEYS = (
    "format", "limit", "block_size", "max_turns", "tokenizer", "characters_per_token",
)  # fmt: skip


_AtATime = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]


class TraceConfig(CommonConfig):
    """A recorded trace. docs/reference/trace-formats.md has the fields of each format."""

    kind: Literal["trace"]
    format: TraceFormat
    """Format of the file."""
    path: Annotated[str, Field(min_length=1)]
    """The file, plain or gzip. With format `weka` also a folder of such files."""
    limit: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | None = None
    """Take only this many requests, from the beginning. Unit: requests."""
    time_scale: Annotated[float, Field(gt=0, le=10**6)] = 1.0
    """Recorded arrival times and pauses are multiplied by this: 0.25 is four times as fast."""
    block_size: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Tokens that one block id of the trace stands for. Only with formats `mooncake` (512 without
    it) and `bailian` (16 without it). Unit: tokens."""
    arrivals: Arrivals | None = None
    """When requests, or conversations, begin, if the file does not say it: formats `sharegpt`,
    `lmsys`, `weka`, `mooncake` and `autobench`. Without it: all at time 0."""
    at_a_time: _AtATime | None = None
    """Most conversations under way: when one has ended, the next begins, whatever their recorded
    times. Instead of `arrivals`. Only with formats `sharegpt`, `lmsys`, `mooncake` (with `delay`)
    and `weka`. Unit: sessions."""
    think_s: ThinkTime | None = None
    """Pause between an answer and the next request of the conversation. Only with formats
    `sharegpt` and `lmsys`. Without it: none. Unit: s."""
    max_pause_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Longer recorded pauses of a session become this one, before `time_scale`. Only with formats
    `mooncake` and `weka`. Without it: no limit. Unit: s."""
    max_turns: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | None = None
    """Take only this many requests of each conversation: 1 is what the benchmarks of SGLang and
    vLLM send. Only with formats `sharegpt` and `lmsys`. Unit: requests."""
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    """A Hugging Face `tokenizer.json`, or its folder, which counts the tokens of texts. Needs the
    package `tokenizers`. Only with formats `sharegpt` and `lmsys`."""
    characters_per_token: Annotated[float, Field(ge=0.1, le=100)] | None = None
    """Without a tokenizer, a text has this many characters for each token: 4 without this key. Only
    with formats `sharegpt` and `lmsys`."""

    @model_validator(mode="after")
    def _keys_go_with_format(self) -> Self:
        for key, formats in _FORMATS_OF_KEY.items():
            if getattr(self, key) is not None and self.format not in formats:
                reason = f"{key} goes only with format {' or '.join(formats)}, not {self.format}"
                raise KeysError(reason, key, "format")
        _at_most_one(self, "arrivals", "at_a_time")
        if self.tokenizer is not None and self.characters_per_token is not None:
            raise KeysError(
                "tokenizer and characters_per_token exclude each other",
                "tokenizer",
                "characters_per_token",
            )
        return self


def _at_most_one(section: StrictModel, *keys: str) -> list[str]:
    """Those of the keys that are given; raises KeysError if these are two or more."""
    given = [key for key in keys if getattr(section, key) is not None]
    if len(given) > 1:
        raise KeysError(f"{' and '.join(given)} exclude each other", *given)
    return given


def _starts(section: StrictModel, *keys: str) -> None:
    """Raise KeysError unless exactly one of the keys says when sessions begin."""
    if not _at_most_one(section, *keys):
        raise KeysError(f"needs one of {', '.join(keys)}", *keys)


_Count = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
_Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class SyntheticConfig(CommonConfig):
    """Independent requests."""

    kind: Literal["synthetic"]
    num_requests: _Count
    """How many requests there are. Unit: requests."""
    arrivals: Arrivals
    """When they arrive."""
    prompt_tokens: LengthDistribution
    """Length of the part of the prompt that no other request has. Unit: tokens."""
    output_tokens: LengthDistribution
    """Tokens that are generated. Unit: tokens."""
    prefixes: Prefixes | None = None
    """Shared beginnings of prompts, after the system prompt. Without it: none."""
    system_prompt_tokens: _Tokens = 0
    """Length of the system prompt that every request begins with. Unit: tokens."""


class SystemPrompts(StrictModel):
    """Different system prompts. Each session draws one."""

    count: Annotated[int, Field(ge=1, le=10**6)]
    """How many different system prompts there are."""
    tokens: Length
    """Length of each. Unit: tokens."""


class SessionsConfig(CommonConfig):
    """Conversations. A prompt is the previous prompt, the answer to it, and new text."""

    kind: Literal["sessions"]
    sessions: _Count
    """How many conversations there are. Unit: sessions."""
    arrivals: Arrivals | None = None
    """When they start. Required without `clients` or `at_a_time`."""
    at_a_time: _Count | None = None
    """Most conversations under way: when one has ended, the next begins. Instead of `arrivals`;
    needs `closed_loop`. Unit: sessions."""
    clients: _Count | None = None
    """How many clients there are. Each has an equal part of the conversations, one after another,
    and the first of each starts at time 0. Instead of `arrivals`; needs `closed_loop`. Unit:
    clients."""
    turns: LengthDistribution
    """Number of requests in a conversation. Unit: requests."""
    user_tokens: LengthDistribution
    """New tokens that a turn adds to the prompt. Unit: tokens."""
    output_tokens: LengthDistribution
    """Tokens that are generated in a turn. Unit: tokens."""
    think_s: ThinkTime
    """Pause before the next turn. Unit: s."""
    system_prompts: SystemPrompts | None = None
    """The system prompts that conversations begin with. Without it: none."""
    closed_loop: bool = True
    """`true`: the pause begins when the previous turn finished. `false`: it begins when the
    previous turn was sent."""

    @model_validator(mode="after")
    def _begins(self) -> Self:
        _starts(self, "arrivals", "clients", "at_a_time")
        for key in ("clients", "at_a_time"):
            if getattr(self, key) is not None and not self.closed_loop:
                raise KeysError(f"{key} goes only with closed_loop", key, "closed_loop")
        if self.clients is not None and self.clients > self.sessions:
            raise KeysError("there are more clients than sessions", "clients", "sessions")
        return self


class SubAgents(StrictModel):
    """Agents that an agent starts in place of a tool. They run side by side, and it waits for all.

    Each begins with the same system prompt, a task of its own, and then works like its parent, with
    the lengths and pauses of the parent's tools.
    """

    share: Annotated[float, Field(gt=0, le=1)]
    """The share of tool calls that start sub-agents instead. Unit: share."""
    count: LengthDistribution
    """How many are started at once. Unit: sub-agents."""
    calls: LengthDistribution
    """Requests of a sub-agent. Unit: requests."""
    task_tokens: LengthDistribution
    """Length of a sub-agent's task. Its last answer becomes part of its parent's next prompt. Unit:
    tokens."""
    system_tokens: _Tokens = 0
    """Length of the system prompt that all sub-agents begin with. Unit: tokens."""


class Compaction(StrictModel):
    """What happens when a conversation gets long: a summary takes its place.

    Before a request whose prompt would be too long, the agent asks for a summary: the conversation
    so far, with an instruction. The prompts after it begin with the system prompt and the summary.
    """

    above_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    """The longest prompt that is sent, if a summary can make it shorter. Unit: tokens."""
    summary_tokens: LengthDistribution
    """Length of a summary. Unit: tokens."""
    instruction_tokens: Length = 100
    """Length of the instruction that asks for it. Unit: tokens."""


class AgentsConfig(CommonConfig):
    """Sessions of agents: tasks that a person gives, model calls, and tools between the calls.

    A prompt is the conversation so far and a new text: a task, what a tool returned, or what
    sub-agents reported. Each request waits for the answer before it.
    """

    kind: Literal["agents"]
    sessions: _Count
    """How many sessions there are. Unit: sessions."""
    arrivals: Arrivals | None = None
    """When they start. Required without `at_a_time`."""
    at_a_time: _Count | None = None
    """Most sessions under way: when one has ended, the next begins. Instead of `arrivals`. Unit:
    sessions."""
    tasks: LengthDistribution
    """Number of tasks in a session. Unit: tasks."""
    calls: LengthDistribution
    """Number of requests for a task. A tool runs between two of them. Unit: requests."""
    task_tokens: LengthDistribution
    """Length of a task. Unit: tokens."""
    tool_tokens: LengthDistribution
    """Length of what a tool returns. Unit: tokens."""
    output_tokens: LengthDistribution
    """Tokens that are generated for a request. Unit: tokens."""
    think_s: ThinkTime
    """Pause before the next task. Unit: s."""
    tool_s: ThinkTime
    """Time that a tool takes. Unit: s."""
    tools: _Count | None = None
    """How many tools can run at a time, of all sessions together: a call that finds none free
    waits. Without it: no limit, so a tool's time does not depend on the load. Unit: tools."""
    system_prompts: SystemPrompts | None = None
    """The system prompts that sessions begin with. Without it: none."""
    sub_agents: SubAgents | None = None
    """Agents that run side by side in place of some tools. Without it: none."""
    compaction: Compaction | None = None
    """Summaries that take the place of long conversations. Without it: none."""

    @model_validator(mode="after")
    def _begins(self) -> Self:
        _starts(self, "arrivals", "at_a_time")
        return self


class FittedConfig(CommonConfig):
    """Requests like those of a trace, drawn from its statistics (`simulate workload --fit`)."""

    kind: Literal["fitted"]
    path: Annotated[str, Field(min_length=1)]
    """The file of statistics."""
    num_requests: Annotated[int, Field(ge=2, le=MAX_REQUESTS)] | None = None
    """How many requests there are. Without it: as many as the trace had. Unit: requests."""
    time_scale: Annotated[float, Field(gt=0, le=10**6)] = 1.0
    """Arrival times are multiplied by this: 0.25 is four times as fast."""


class ClientsConfig(CommonConfig):
    """A fixed number of clients, each with one request at a time.

    All of them send their first request at time 0.
    """

    kind: Literal["clients"]
    clients: _Count
    """How many clients there are. Unit: clients."""
    requests_per_client: _Count
    """Number of requests that each client sends. All clients together send at most 10**8. Unit:
    requests."""
    think_s: ThinkTime
    """Pause between an answer and the client's next request. Unit: s."""
    prompt_tokens: LengthDistribution
    """Length of the part of the prompt that no other request has. Unit: tokens."""
    output_tokens: LengthDistribution
    """Tokens that are generated. Unit: tokens."""
    prefixes: Prefixes | None = None
    """Shared beginnings of prompts, after the system prompt. Without it: none."""
    system_prompt_tokens: _Tokens = 0
    """Length of the system prompt that every request begins with. Unit: tokens."""

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if self.clients * self.requests_per_client > MAX_REQUESTS:
            raise KeysError(
                f"clients x requests_per_client is above {MAX_REQUESTS}",
                "clients",
                "requests_per_client",
            )
        return self


_Unmixed = (
    TraceConfig | SyntheticConfig | SessionsConfig | AgentsConfig | FittedConfig | ClientsConfig
)
UnmixedConfig = Annotated[Annotated[_Unmixed, ByKind()] | UserClass, OrUserClass()]


class MixPart(StrictModel):
    """One tenant's traffic."""

    tenant: PrintableName
    """The tenant's name, different in every part. Request ids begin with it."""
    workload: UnmixedConfig
    """Traffic of any kind but `mix` and `bench`, without a `tenant` of its own."""

    @model_validator(mode="after")
    def _one_tenant(self) -> Self:
        if not isinstance(self.workload, UserClass) and self.workload.tenant:
            raise KeysError(
                "the workload of a part must not name a tenant: the part names it",
                "workload",
                "tenant",
            )
        return self


class MixConfig(StrictModel):
    """Traffic of several tenants at once, in order of arrival."""

    kind: Literal["mix"]
    parts: Annotated[tuple[MixPart, ...], Field(strict=False, min_length=1)]
    """The tenants. Requests that arrive at the same time keep the order of this list."""

    @model_validator(mode="after")
    def _rids_stay_unique(self) -> Self:
        tenants = [part.tenant for part in self.parts]
        if len(set(tenants)) < len(tenants):
            raise KeysError("two parts have the same tenant", "parts")
        for tenant in tenants:
            # Request 1-0 of tenant "a" and request 0 of tenant "a-1" would both be "a-1-0".
            clash = next((other for other in tenants if other.startswith(f"{tenant}-")), None)
            if clash is not None:
                raise ValueError(f"tenants {tenant!r} and {clash!r} could give equal request ids")
        return self


WorkloadConfig = Annotated[
    Annotated[_Unmixed | BenchConfig | MixConfig, ByKind()] | UserClass,
    OrUserClass(),
]
