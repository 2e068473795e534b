"""What the builders of workloads share: random streams, token streams, the folder of traces."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, KeyPath
from sim.workload.arrivals import draw_think_ns
from sim.workload.config import CommonConfig
from sim.workload.lengths import limit_outputs, predict_outputs
from sim.workload.limits import MAX_TOKENS, NEVER_GIVES_UP_NS
from sim.workload.prompts import PromptColumn
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.table import RequestTable
from sim.workload.traces.read import TraceReader, read_trace


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What the builder of one workload, or of one part of a mix, is given.

    Attributes:
        key: key path of the workload's section in the scenario, for errors.
        base_dir: folder that a trace's path is relative to.
        random: random streams. Each part of a mix has its own.
        streams: hands out token streams. All parts of a mix share it.
        mixed: the workload is part of a mix. Then the stream seeds and block ids of a trace are
            renamed, so that they differ from those of other parts.
        read_trace: reads the rows of a trace.
    """

    key: KeyPath
    base_dir: Path
    random: RandomStreams
    streams: TokenStreams
    mixed: bool = False
    read_trace: TraceReader = read_trace

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
