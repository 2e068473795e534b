"""The batch of a launch, as executors and latency models see it."""

from collections.abc import Sequence

from sim.core.batch import Batch, ForwardMode, PrefillRow
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler, Launch


def batch_of(
    launch: Launch[Request], scheduler: BaseScheduler[Request], stopped_rids: Sequence[str]
) -> Batch:
    """Describe a launch that was just decided.

    `stopped_rids` are the requests that were taken out of the running batch since the last one.
    """
    running = scheduler.running
    num_prefill_context = 0
    for request in launch.prefill:
        num_prefill_context += request.extend_end
    decodes = launch.mode is not ForwardMode.EXTEND
    num_decode_context = running.num_tokens if decodes else 0
    resting = scheduler.resting
    return Batch(
        launch.mode,
        prefill_rows(launch),
        running.rids if decodes else (),
        num_prefill_context + num_decode_context,
        num_decode_context,
        tuple(stopped_rids),
        tuple([request.rid for request in resting]) if resting else (),
        running.max_seq_len if decodes else 0,
        running.min_seq_len if decodes else 0,
    )


def prefill_rows(launch: Launch[Request]) -> tuple[PrefillRow, ...]:
    """The prefill rows of a launch, in batch order."""
    rows = [
        PrefillRow(
            request.rid,
            request.prefix_len,
            request.extend_len,
            request.num_generated,
            request not in launch.chunked,
            request.loaded_len,
            request.load_tokens,
        )
        for request in launch.prefill
    ]
    return tuple(rows)
