"""The seam between the runner and recorded decode passes."""

from typing import Protocol

from torch import Tensor

from realrun.batch_plan import BatchPlan


class RecordedDecodes(Protocol):
    """Decode passes recorded once for some numbers of rows, and replayed with new inputs."""

    def padded_rows(self, num_rows: int) -> int:
        """Rows of the smallest recorded pass that takes `num_rows` decodes; 0 if none does."""
        ...

    def prepare(self, plan: BatchPlan) -> None:
        """Host work and copies of the inputs; the plan is padded to a recorded number of rows."""
        ...

    def replay(self, num_rows: int, token_ids: Tensor) -> Tensor:
        """Run the pass prepared last. Enqueues work, waits for nothing.

        Args:
            num_rows: its padded number of rows.
            token_ids: int64 [at most num_rows] on the device, one of each real row.

        Returns:
            Logits [num_rows, vocab_size]; overwritten by the next replay.
        """
        ...
