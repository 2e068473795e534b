"""KV in CPU memory of versions before 0.33.0: vLLM's own worker, whose copies take virtual time.

Real is `OffloadingConnectorWorker`, which says what of a request has ended. Replaced is what it
gives copies to: each direction makes one copy at a time, each as long as its blocks take. Copies to
CPU memory wait for the steps that were launched before; those from there wait for none.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.v1.outputs import KVConnectorOutput

Config = dict[str, Any]


class _Link:
    """One direction: a handler of vLLM's worker."""

    def __init__(self, ns_per_block: float) -> None:
        self.now_ns = self.after_ns = 0
        self._ns_per_block = ns_per_block
        self._free_ns = 0
        self._end_ns: dict[int, int] = {}
        self._jobs: deque[int] = deque()

    def transfer_async(self, job_id: int, spec: tuple[Any, Any]) -> bool:
        on_gpu = next(each for each in spec if each.medium() == "GPU")
        begin_ns = max(self.after_ns, self._free_ns)
        self._free_ns = begin_ns + round(len(on_gpu.block_ids) * self._ns_per_block)
        self._end_ns[job_id] = self._free_ns
        self._jobs.append(job_id)
        return True

    def get_finished(self) -> list[Any]:
        finished: list[Any] = []
        while self._jobs and self._end_ns[self._jobs[0]] <= self.now_ns:
            job_id = self._jobs.popleft()
            finished.append(SimpleNamespace(job_id=job_id, success=True, transfer_time=None))
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """The worker of a server waits for jobs of either direction."""
        ends = [self._end_ns[job_id] for job_id in job_ids if job_id in self._end_ns]
        self.now_ns = max([self.now_ns, *ends])

    @property
    def next_ns(self) -> int | None:
        return self._end_ns[self._jobs[0]] if self._jobs else None


class OldWorkers:
    """Stands in for the worker of one server."""

    def __init__(self, config: Config) -> None:
        self.role: str | None = None
        ns_per_block = float(config["offload"]["copy_ns_per_block"])
        self._stores, self._loads = _Link(ns_per_block), _Link(ns_per_block)
        self._worker = OffloadingConnectorWorker(SimpleNamespace())
        links = self._worker.worker
        links.handlers = [self._stores, self._loads]
        links.transfer_type_to_handler = {
            ("GPU", "CPU"): self._stores,
            ("CPU", "GPU"): self._loads,
        }
        self._ended_rids: list[str] = []

    @property
    def next_ns(self) -> int | None:
        """When the next copy ends."""
        times_ns = self._stores.next_ns, self._loads.next_ns
        return min([each for each in times_ns if each is not None], default=None)

    def begin(self, decided: Any, _scripts: object, now_ns: int, device_free_ns: int) -> int:
        """Returns when the worker launches the step: it waits for copies of what is preempted."""
        self._stores.now_ns = self._loads.now_ns = now_ns
        self._stores.after_ns = max(now_ns, device_free_ns)
        self._worker.handle_preemptions(decided.kv_connector_metadata)
        return max(self._stores.now_ns, self._loads.now_ns)

    def launched(self, decided: Any, now_ns: int, _device_free_ns: int) -> bool:
        """The step is launched, with the copies that were decided with it; none is left over."""
        self._loads.after_ns = now_ns
        self._worker.start_kv_transfers(decided.kv_connector_metadata)
        self._worker.prepare_store_kv(decided.kv_connector_metadata)
        self._ended_rids = list(decided.finished_req_ids)
        return False

    def ended(self, script: Any, now_ns: int) -> None:
        """A request has ended, and its blocks are copied."""

    def report(self, now_ns: int) -> KVConnectorOutput | None:
        """What has ended until now; reported once, in the order of time. vLLM reports sets."""
        self._stores.now_ns = self._loads.now_ns = now_ns
        jobs = dict(self._worker._jobs)
        sent, loaded = self._worker.get_finished(self._ended_rids)
        order = [rid for job_id, (rid, _) in jobs.items() if job_id not in self._worker._jobs]
        if not (sent or loaded):
            return None
        return KVConnectorOutput(
            finished_sending=_in_order(sent, [*order, *self._ended_rids]),
            finished_recving=_in_order(loaded, order),
        )


def _in_order(rids: set[str], order: list[str]) -> list[str]:
    return [rid for rid in dict.fromkeys(order) if rid in rids]
