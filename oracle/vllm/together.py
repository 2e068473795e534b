"""Prefill and decode servers that keep KV in CPU memory, too: vLLM's `MultiConnector` itself.

Its parts are `NixlConnector` and `OffloadingConnector`, in this order; the workers of each are
replaced as they are alone (`handover.py`, `offload.py`).
"""

from types import SimpleNamespace
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiKVConnectorWorkerMetadata,
)
from vllm.v1.outputs import KVConnectorOutput

from oracle.vllm.handover import Workers
from oracle.vllm.load import has_limits
from oracle.vllm.offload import OffloadWorkers
from oracle.vllm.offload_old import OldWorkers
from oracle.vllm.simple import SimpleWorkers, is_simple, num_host_blocks

Config = dict[str, Any]


class MultiWorkers:
    """Stands in for the workers of one server."""

    def __init__(self, config: Config) -> None:
        copying = OffloadWorkers if has_limits(config["version"]) else OldWorkers
        self._sending, self._copying = Workers(config), copying(config)
        self.role = self._sending.role
        # Of requests that both connectors save: how many ends are not reported.
        self._extra_saves: dict[str, int] = {}

    @property
    def next_ns(self) -> int | None:
        times_ns = (self._sending.next_ns, self._copying.next_ns)
        return min([each for each in times_ns if each is not None], default=None)

    def begin(self, decided: Any, scripts: Any, now_ns: int, device_free_ns: int) -> int:
        sending, copying = _parts(decided)
        self._sending.begin(sending, scripts, now_ns, device_free_ns)
        return self._copying.begin(copying, scripts, now_ns, device_free_ns)

    def launched(self, decided: Any, now_ns: int, device_free_ns: int) -> bool:
        self._extra_saves |= decided.kv_connector_metadata.extra_async_saves or {}
        return self._copying.launched(_parts(decided)[1], now_ns, device_free_ns)

    def ended(self, script: Any, now_ns: int) -> None:
        self._sending.ended(script, now_ns)

    def report(self, now_ns: int) -> KVConnectorOutput | None:
        sent, copied = self._sending.report(now_ns), self._copying.report(now_ns)
        if copied is None:
            return self._without_first(sent)
        found = KVConnectorOutput() if sent is None else sent
        found.finished_recving = [*(found.finished_recving or ()), *copied.finished_recving]
        found.finished_sending = [*(copied.finished_sending or ()), *(found.finished_sending or ())]
        if copied.kv_connector_worker_meta is not None:
            parts = None, copied.kv_connector_worker_meta
            found.kv_connector_worker_meta = MultiKVConnectorWorkerMetadata(metadata=parts)
        return self._without_first(found)

    def _without_first(self, found: KVConnectorOutput | None) -> KVConnectorOutput | None:
        """As `get_finished`: a request that both save has been sent when the last has ended."""
        if found is None or not found.finished_sending:
            return found
        ended = []
        for rid in found.finished_sending:
            if rid in self._extra_saves:
                del self._extra_saves[rid]
            else:
                ended.append(rid)
        found.finished_sending = ended
        return found


def workers_of(config: Config) -> Any:
    """What stands in for the workers of a case's server."""
    if "offload" not in config:
        return Workers(config)
    if is_simple(config):
        return SimpleWorkers(config)
    if "role" in config:
        return MultiWorkers(config)
    return OffloadWorkers(config) if has_limits(config["version"]) else OldWorkers(config)


def host_state(config: Config, scheduler: Any, tiers: Any) -> Config:
    """What a step says of CPU memory; only some connectors do."""
    if is_simple(config):
        return {"host_chunks": num_host_blocks(scheduler)}
    return {} if tiers is None else {"host_chunks": tiers.num_chunks}


def transfer_times_ns(scheduler: Any, workers: Any, tiers: Any) -> list[int]:
    """When transfers end next; an engine without requests does not look for that."""
    if not scheduler.has_requests():
        return []
    tier_ns = None if tiers is None else tiers.next_ns()
    return [each for each in (workers.next_ns, tier_ns) if each is not None]


def _parts(decided: Any) -> list[Any]:
    """The decision as each of the connectors sees it."""
    return [
        SimpleNamespace(kv_connector_metadata=each, finished_req_ids=decided.finished_req_ids)
        for each in decided.kv_connector_metadata.metadata
    ]
