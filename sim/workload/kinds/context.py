"""What the builders of workloads share: random streams, token streams, the folder of traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, KeyPath
from sim.validation import StrictModel
from sim.workload import MAX_TOKENS, NEVER_GIVES_UP_NS, NO_PRIORITY
from sim.workload.arrivals import Arrivals, ThinkTime, draw_arrivals_ns, draw_think_ns
from sim.workload.config import CommonConfig
from sim.workload.lengths import Prefixes, draw_lengths, limit_outputs, predict_outputs
from sim.workload.prompts import NO_GROUP, PrefixedPrompts, PromptColumn
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.workload import RequestTable


class BuildContext(NamedTuple):
    """What the builder of one workload, or of one part of a mix, is given.

    Attributes:
        key: key path of the workload's section in the scenario, for errors.
        base_dir: folder that a trace's path is relative to.
        random: random streams. Each part of a mix has its own.
        streams: hands out token streams. All parts of a mix share it.
        mixed: the workload is part of a mix. Then the stream seeds and block ids of a trace are
            renamed, so that they differ from those of other parts.
    """

    key: KeyPath
    base_dir: Path
    random: RandomStreams
    streams: TokenStreams
    mixed: bool = False
    read_trace: TraceReader = read_trace

    def lengths(self, config: StrictModel, name: str, num_draws: int) -> Int64:
        """Draws of the section's key `name`, a distribution of lengths; shape [num_draws]."""
        rng = self.random.stream(name)
        return draw_lengths(getattr(config, name), num_draws, rng, key=(*self.key, name))

    def arrivals_ns(self, arrivals: Arrivals, num_arrivals: int) -> Int64:
        """See `draw_arrivals_ns`."""
        rng, key = self.random.stream("arrivals"), (*self.key, "arrivals")
        return draw_arrivals_ns(arrivals, num_arrivals, rng, key=key)

    def think_ns(self, think: ThinkTime, num_draws: int, name: str = "think") -> Int64:
        """Draws of the section's key `name` with `_s`; see `draw_think_ns`."""
        rng, key = self.random.stream(name), (*self.key, f"{name}_s")
        return draw_think_ns(think, num_draws, rng, key=key)

    def below(self, name: str) -> "BuildContext":
        """The context of a section in this one; its draws differ from all others."""
        return self._replace(key=(*self.key, name), random=self.random.scoped(name))

    def priorities(
        self, config: CommonConfig, num_rows: int, own: Int64 | None = None
    ) -> Int64 | None:
        """Each request's `own` priority, or else that of the section; None: no request has one."""
        if config.priority is None:
            return own
        given = np.full(num_rows, NO_PRIORITY) if own is None else own
        return np.where(given == NO_PRIORITY, config.priority, given)

    def unshared_prompts(self, own_tokens: Int64) -> PrefixedPrompts:
        """Prompts of these lengths that have nothing in common."""
        return PrefixedPrompts(
            system_tokens=0,
            group=np.full(len(own_tokens), NO_GROUP, dtype=np.int64),
            group_tokens=np.zeros(0, dtype=np.int64),
            own_tokens=own_tokens,
            system_seed=0,
            group_seed=0,
            own_seed=self.streams.take(len(own_tokens)),
        )

    def prefixed_prompts(
        self, own_tokens: Int64, system_tokens: int, prefixes: Prefixes | None
    ) -> PrefixedPrompts:
        """Put a system prompt and group prefixes before prompts of these lengths."""
        num_rows = len(own_tokens)
        group = np.full(num_rows, NO_GROUP, dtype=np.int64)
        group_tokens = np.zeros(0, dtype=np.int64)
        if prefixes is not None:
            drawn = _draw_groups(prefixes, num_rows, self.random.stream("prefix_group"))
            shares = self.random.stream("prefix_share").random(num_rows)
            is_shared = shares < prefixes.share_probability
            group = np.where(is_shared, drawn, NO_GROUP)
            rng, key = self.random.stream("prefix_tokens"), (*self.key, "prefixes", "tokens")
            group_tokens = draw_lengths(prefixes.tokens, prefixes.groups, rng, key=key)
            if prefixes.unshared_as_long:
                own_tokens = own_tokens + np.where(is_shared, 0, group_tokens[drawn])
        return PrefixedPrompts(
            system_tokens=system_tokens,
            group=group,
            group_tokens=group_tokens,
            own_tokens=own_tokens,
            system_seed=self.streams.take(1),
            group_seed=self.streams.take(len(group_tokens)),
            own_seed=self.streams.take(num_rows),
        )

    def generated_table(
        self,
        config: CommonConfig,
        *,
        rids: Sequence[str],
        prompts: PromptColumn,
        output_tokens: Int64,
        output_seed: int,
        sessions: Sequence[str] | None = None,
    ) -> RequestTable:
        """A table of generated requests. The output of row i is token stream `output_seed + i`."""
        require_short_prompts(prompts, self.key)
        max_new_tokens = limit_outputs(config.max_new_tokens, output_tokens, own=None)
        return RequestTable(
            rids=rids,
            prompts=prompts,
            output_tokens=output_tokens,
            output_seeds=np.arange(output_seed, output_seed + len(output_tokens)),
            max_new_tokens=max_new_tokens,
            predicted_tokens=self.predict(config, np.minimum(output_tokens, max_new_tokens)),
            priorities=self.priorities(config, len(output_tokens)),
            gives_up_ns=self.give_up(config, len(output_tokens)),
            tenants=config.tenant,
            sessions=sessions,
        )

    def give_up(
        self, config: CommonConfig, num_rows: int, own: Int64 | None = None
    ) -> Int64 | None:
        """After how long each client gives up: as configured, else its `own` time; None: never."""
        if config.give_up is None:
            return own
        rng = self.random.stream("give_up")
        gives_up = rng.random(num_rows) < config.give_up.share
        key = (*self.key, "give_up", "after_s")
        after_ns = draw_think_ns(config.give_up.after_s, num_rows, rng, key=key)
        return np.where(gives_up, after_ns, NEVER_GIVES_UP_NS)

    def predict(self, config: CommonConfig, output_tokens: Int64) -> Int64 | None:
        """The guesses of the output lengths that the configuration asks for; None: no guesses."""
        rng = self.random.stream("predicted_output")
        return predict_outputs(config.predicted_output, output_tokens, rng)


def require_short_prompts(prompts: PromptColumn, key: KeyPath) -> None:
    """Raise InputError, about `key`, if a prompt is above the limit on tokens."""
    longest = int(prompts.num_tokens.max(initial=0))
    if longest > MAX_TOKENS:
        raise InputError(f"a prompt has {longest} tokens, above {MAX_TOKENS}", key=key)


def _draw_groups(prefixes: Prefixes, num_rows: int, rng: "np.random.Generator") -> Int64:
    popularity = np.arange(1, prefixes.groups + 1, dtype=np.float64) ** -prefixes.zipf
    cumulative = np.cumsum(popularity)
    places = rng.random(num_rows) * cumulative[-1]
    groups: Int64 = np.searchsorted(cumulative, places, side="right").astype(np.int64)
    return groups
