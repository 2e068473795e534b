"""What a workload is built with: randomness, token streams, and where files are looked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.errors import InputError, KeyPath
from sim.workload.config import CommonConfig
from sim.workload.limits import MAX_TOKENS, Int64
from sim.workload.outputs import limit_outputs, predict_outputs
from sim.workload.prompts import PromptColumn
from sim.workload.rng import RandomStreams
from sim.workload.table import RequestTable
from sim.workload.token_streams import TokenStreams
from sim.workload.traces.read import TraceReader, read_trace


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The surroundings of one workload.

    Attributes:
        key: of its section in the scenario, for error messages.
        base_dir: what a trace's path is relative to.
        random: its random streams, which no other part of a mix uses.
        streams: where its token streams come from, shared by all parts of a mix.
        mixed: whether other parts stand beside it, so that a trace's own stream seeds and block
            ids must be renamed.
        read_trace: how the rows of a trace are come by.
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
        """Requests of our own making; row i answers with token stream `output_seed + i`.

        Raises:
            InputError: a prompt is above the limit on tokens.
        """
        longest = int(prompts.num_tokens.max(initial=0))
        if longest > MAX_TOKENS:
            reason = f"a prompt has {longest} tokens, above {MAX_TOKENS}"
            raise InputError(reason, key=self.key)
        max_new_tokens = limit_outputs(config.max_new_tokens, output_tokens, own=None)
        return RequestTable(
            rids=rids,
            prompts=prompts,
            output_tokens=output_tokens,
            output_seeds=np.arange(output_seed, output_seed + len(output_tokens)),
            max_new_tokens=max_new_tokens,
            predicted_tokens=self.predict(config, np.minimum(output_tokens, max_new_tokens)),
            tenants=config.tenant,
            sessions=sessions,
        )

    def predict(self, config: CommonConfig, output_tokens: Int64) -> Int64 | None:
        """The guesses of what will be generated, as the configuration wants them."""
        rng = self.random.stream("predicted_output")
        return predict_outputs(config.predicted_output, output_tokens, rng)
