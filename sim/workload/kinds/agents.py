"""Draws sessions of agents: tasks, calls, tools, sub-agents and summaries of long conversations."""

from dataclasses import dataclass

import numpy as np

from sim.core.arrays import Bools, Int64
from sim.core.errors import InputError
from sim.workload import MAX_REQUESTS
from sim.workload.config import AgentsConfig, Compaction, SubAgents
from sim.workload.kinds.context import BuildContext
from sim.workload.lengths import limit_outputs, quoted_tokens
from sim.workload.prompts import NO_SUMMARY, TurnPrompts
from sim.workload.workload import Chains, LazySequence, Workload, closed_loop

_NOBODY = -1


@dataclass(slots=True)
class _Calls:
    """Requests as columns, chain by chain: an agent's own, or those of sub-agents.

    Attributes:
        chain: the number of each request's chain.
        own_tokens: its new text.
        output_tokens: its answer.
        pause_ns: the pause before it.
        is_tool: whether the pause is a tool's.
        is_summary: whether the answer takes the place of the conversation.
    """

    chain: Int64
    own_tokens: Int64
    output_tokens: Int64
    pause_ns: Int64
    is_tool: Bools
    is_summary: Bools

    def __len__(self) -> int:
        return len(self.chain)

    @staticmethod
    def joined(one: "_Calls", other: "_Calls") -> "_Calls":
        """Both, `one` first; the chains of `other` get the numbers after those of `one`."""
        num_chains = int(one.chain[-1]) + 1
        return _Calls(
            np.concatenate((one.chain, other.chain + num_chains)),
            np.concatenate((one.own_tokens, other.own_tokens)),
            np.concatenate((one.output_tokens, other.output_tokens)),
            np.concatenate((one.pause_ns, other.pause_ns)),
            np.concatenate((one.is_tool, other.is_tool)),
            np.concatenate((one.is_summary, other.is_summary)),
        )

    def firsts(self) -> Int64:
        """The first row of each chain."""
        firsts: Int64 = np.flatnonzero(np.diff(self.chain, prepend=_NOBODY))
        return firsts


def build_agents(config: AgentsConfig, context: BuildContext) -> Workload:
    """Draw all sessions.

    Raises:
        InputError: there are too many requests, or a prompt is too long.
    """
    calls, is_last = _main_calls(config, context)
    parent = np.zeros(0, dtype=np.int64)
    sub_calls: _Calls | None = None
    if config.sub_agents is not None:
        sub_calls, parent = _sub_agents(config.sub_agents, config, context, ~is_last)
        _take_reports(config, calls, sub_calls, parent)
    system = 0 if config.system_prompts is None else config.system_prompts.tokens
    if config.compaction is not None:
        calls, places = _compacted(config.compaction, config, context, calls, system)
        parent = places[parent]
    num_sessions = config.sessions
    if sub_calls is not None and len(sub_calls):
        calls = _Calls.joined(calls, sub_calls)
    _require_few(len(calls), context)
    offsets = np.append(calls.firsts(), len(calls))
    prompts = _prompts(config, context, calls, offsets)
    session = np.concatenate((np.arange(num_sessions), calls.chain[parent]))

    def session_of(row: int) -> str:
        return str(session.item(calls.chain.item(row)))

    def rid(row: int) -> str:
        chain = calls.chain.item(row)
        name = session_of(row) if chain < num_sessions else f"{session_of(row)}.{chain}"
        return f"{name}-{row - offsets.item(chain)}"

    table = context.generated_table(
        config,
        rids=LazySequence(len(calls), rid),
        prompts=prompts,
        output_tokens=calls.output_tokens,
        output_seed=prompts.output_seed,
        sessions=LazySequence(len(calls), session_of),
    )
    pause_ns = calls.pause_ns
    pause_ns[offsets[:num_sessions]] = (
        0 if config.arrivals is None else context.arrivals_ns(config.arrivals, num_sessions)
    )
    # The first request of a chain follows no tool, so each call is followed by its own tool.
    calls_tool = np.append(calls.is_tool[1:], False)
    calls_tool[parent] = True
    chains = Chains(
        offsets=offsets,
        think_ns=pause_ns,
        parent_row=np.concatenate((np.full(num_sessions, _NOBODY), parent)),
        needs_tool=calls.is_tool,
        calls_tool=calls_tool,
    )
    return closed_loop(table, chains, places=config.at_a_time, num_tools=config.tools)


def _require_few(num_calls: int, context: BuildContext) -> None:
    if num_calls > MAX_REQUESTS:
        reason = f"drew {num_calls} requests in all, above {MAX_REQUESTS}"
        raise InputError(reason, key=(*context.key, "calls"))


def _main_calls(config: AgentsConfig, context: BuildContext) -> tuple[_Calls, Bools]:
    """The calls of the sessions' own agents, and which are the last ones of their tasks."""
    tasks = context.lengths(config, "tasks", config.sessions)
    _require_few(int(tasks.sum()), context)
    num_calls = context.lengths(config, "calls", int(tasks.sum()))
    _require_few(int(num_calls.sum()), context)
    ends = np.cumsum(num_calls)
    total = int(ends[-1])
    begins_task = np.zeros(total, dtype=np.bool_)
    begins_task[ends - num_calls] = True
    is_last = np.zeros(total, dtype=np.bool_)
    is_last[ends - 1] = True
    task_texts = context.lengths(config, "task_tokens", len(num_calls))
    own_tokens = context.lengths(config, "tool_tokens", total)
    own_tokens[begins_task] = task_texts
    pause_ns = context.think_ns(config.tool_s, total, "tool")
    pause_ns[begins_task] = context.think_ns(config.think_s, len(num_calls))
    calls = _Calls(
        chain=np.repeat(np.repeat(np.arange(config.sessions), tasks), num_calls),
        own_tokens=own_tokens,
        output_tokens=context.lengths(config, "output_tokens", total),
        pause_ns=pause_ns,
        is_tool=~begins_task,
        is_summary=np.zeros(total, dtype=np.bool_),
    )
    return calls, is_last


def _sub_agents(
    section: SubAgents, config: AgentsConfig, context: BuildContext, uses_tool: Bools
) -> tuple[_Calls, Int64]:
    """The calls of all sub-agents, and for each sub-agent the row that starts it."""
    inner = context.below("sub_agents")
    starts = uses_tool & (inner.random.stream("share").random(len(uses_tool)) < section.share)
    counts = inner.lengths(section, "count", int(starts.sum()))
    parent = np.repeat(np.flatnonzero(starts), counts)
    num_calls = inner.lengths(section, "calls", len(parent))
    total = int(num_calls.sum())
    _require_few(total + len(uses_tool), context)
    is_first = np.zeros(total, dtype=np.bool_)
    is_first[np.cumsum(num_calls) - num_calls] = True
    own_tokens = inner.lengths(config, "tool_tokens", total)
    own_tokens[is_first] = inner.lengths(section, "task_tokens", len(parent))
    pause_ns = inner.think_ns(config.tool_s, total, "tool")
    pause_ns[is_first] = 0
    calls = _Calls(
        chain=np.repeat(np.arange(len(parent)), num_calls),
        own_tokens=own_tokens,
        output_tokens=inner.lengths(config, "output_tokens", total),
        pause_ns=pause_ns,
        is_tool=~is_first,
        is_summary=np.zeros(total, dtype=np.bool_),
    )
    return calls, parent


def _quoted(config: AgentsConfig, output_tokens: Int64) -> Int64:
    """Tokens of these answers as later prompts repeat them: cut at the requests' limits."""
    limits = limit_outputs(config.max_new_tokens, output_tokens, own=None)
    return quoted_tokens(output_tokens, limits)


def _take_reports(config: AgentsConfig, calls: _Calls, subs: _Calls, parent: Int64) -> None:
    """The reports of sub-agents, their last answers, are the text of their parent's next call."""
    if not len(parent):
        return
    last = np.append(subs.firsts()[1:], len(subs)) - 1
    reports = np.bincount(
        parent + 1, weights=_quoted(config, subs.output_tokens)[last], minlength=len(calls)
    ).astype(np.int64)
    heard = np.unique(parent) + 1
    calls.own_tokens[heard] = np.maximum(1, reports[heard])
    calls.pause_ns[heard], calls.is_tool[heard] = 0, False


def _compacted(
    section: Compaction, config: AgentsConfig, context: BuildContext, calls: _Calls, system: int
) -> tuple[_Calls, Int64]:
    """The calls, with those that ask for summaries put in, and the new row of each old one.

    `system`: tokens of the system prompt.
    """
    inner = context.below("compaction")
    summaries = inner.lengths(section, "summary_tokens", len(calls))
    own, quoted = calls.own_tokens.tolist(), _quoted(config, calls.output_tokens).tolist()
    quoted_summaries = _quoted(config, summaries).tolist()
    before: list[int] = []
    # Tokens of the conversation so far, and of what it began with: a summary cannot shorten these.
    chain, said, shortest = _NOBODY, 0, 0
    for row, number in enumerate(calls.chain.tolist()):
        if number != chain:
            chain, said, shortest = number, system, system
        if said > shortest and said + own[row] > section.above_tokens:
            shortest = system + quoted_summaries[len(before)]
            # A summary as long as the conversation would make nothing shorter.
            if shortest < said:
                before.append(row)
                said = shortest
        said += own[row] + quoted[row]
    rows = np.array(before, dtype=np.int64)
    # A summary is asked for when the call would be; then the call itself has no pause.
    pauses, tools = calls.pause_ns[rows], calls.is_tool[rows]
    calls.pause_ns[rows], calls.is_tool[rows] = 0, False
    longer = _Calls(
        np.insert(calls.chain, rows, calls.chain[rows]),
        np.insert(calls.own_tokens, rows, section.instruction_tokens),
        np.insert(calls.output_tokens, rows, summaries[: len(rows)]),
        np.insert(calls.pause_ns, rows, pauses),
        np.insert(calls.is_tool, rows, tools),
        np.insert(calls.is_summary, rows, True),
    )
    return longer, np.arange(len(calls)) + np.searchsorted(rows, np.arange(len(calls)), "right")


def _prompts(
    config: AgentsConfig, context: BuildContext, calls: _Calls, offsets: Int64
) -> TurnPrompts:
    streams, section = context.streams, config.system_prompts
    num_system = 0 if section is None else section.count
    first_seed = streams.take(num_system + 1)
    drawn = context.random.stream("system_prompt").integers(0, max(num_system, 1), config.sessions)
    is_sub = calls.chain >= config.sessions
    session = np.where(is_sub, 0, calls.chain)
    of_subs = 0 if config.sub_agents is None else config.sub_agents.system_tokens
    rows = np.arange(len(calls))
    firsts = np.repeat(offsets[:-1], np.diff(offsets))
    # The last summary before each row of its chain.
    last = np.maximum.accumulate(np.where(calls.is_summary, rows, NO_SUMMARY))
    last = np.append(NO_SUMMARY, last[:-1])
    summary = np.where(last >= firsts, last, NO_SUMMARY)
    return TurnPrompts(
        system_tokens=np.where(is_sub, of_subs, 0 if section is None else section.tokens),
        system_seeds=first_seed + np.where(is_sub, num_system, drawn[session]),
        summary=summary,
        begin=np.where(summary < 0, firsts, summary + 1),
        own_tokens=calls.own_tokens,
        quoted_tokens=_quoted(config, calls.output_tokens),
        own_seed=streams.take(len(calls)),
        output_seed=streams.take(len(calls)),
    )
