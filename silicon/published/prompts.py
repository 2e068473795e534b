"""The prompts of llm-d's benchmarks: groups that begin alike, sent again and again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.packed import open_text
from sim.core.units import NS_PER_S
from sim.workload.traces.servetwin import servetwin_line


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedPrompts:
    """Prompts in groups; those of a group begin with the same tokens.

    Attributes:
        num_groups, per_group: how many groups there are, and prompts in each.
        prefix_tokens, question_tokens: of a prompt, the tokens of its group and its own.
        output_tokens: of each answer.
        stages: requests/s and seconds of each load.
        stage_s: seconds from the start of one load to the start of the next. It is long enough for
            all requests to end; idle time changes nothing.
    """

    num_groups: int
    per_group: int
    prefix_tokens: int
    question_tokens: int
    output_tokens: int
    stages: Sequence[tuple[int, int]]
    stage_s: int

    def write(self, path: Path, num_stages: int) -> None:
        """Write the requests of the first loads as a trace of servetwin."""
        with open_text(path) as file:
            file.writelines(self._lines(num_stages))

    def _lines(self, num_stages: int) -> Iterator[str]:
        """All prompts in one shuffled order, over and over, at random times."""
        rng = np.random.default_rng(0)
        order = rng.permutation(self.num_groups * self.per_group)
        number = 0
        for stage, (rate, seconds) in enumerate(self.stages[:num_stages]):
            arrivals_s = np.sort(rng.uniform(0, seconds, rate * seconds)) + stage * self.stage_s
            for arrival_s in arrivals_s.tolist():
                prompt = int(order[number % len(order)])
                group = prompt // self.per_group
                own = [[1 + group, self.prefix_tokens], [1000 + prompt, self.question_tokens]]
                row = {
                    "segments": own,
                    "output_len": self.output_tokens,
                    "ignore_eos": True,
                    "output_seed": 1_000_000 + number,
                }
                number += 1
                yield servetwin_line(round(arrival_s * NS_PER_S), row)
