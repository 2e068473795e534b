"""What an engine needs of whoever runs its batches."""

from typing import Protocol

from sim.core.batch import Batch, StepOutput
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import TokenIds


class Executor(Protocol):
    """Runs batches and remembers what was generated."""

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch. A decode batch may be run several steps in a row.

        Only the last of several steps may finish a request: see `steps_to_finish`.
        """
        ...

    def steps_to_finish(self) -> int:
        """Decode steps not executed yet until one generates an end token; large if none will."""
        ...

    def output_ids(self, rid: str, num_tokens: int) -> TokenIds:
        """The first `num_tokens` output tokens of a request, all generated already."""
        ...

    def output_part(self, rid: str, start: int, stop: int) -> TokenSequence:
        """Output tokens `start` to `stop`, all generated already, to be kept after `forget`."""
        ...

    def forget(self, rid: str) -> None:
        """A request is over: its tokens will not be asked for again."""
        ...
