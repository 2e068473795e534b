"""What vLLM's connectors for CPU memory have in common: what goes on besides copies."""

from collections.abc import Iterable, Sequence

from sim.engine.server_config import BOTH, Partner
from sim.engine.store import Store
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.offload.copies import CopyJob
from sim.vllm.offload.offloaded import Copied
from sim.vllm.offload.tiers import Tiers
from sim.vllm.request import VllmDecision, VllmRequest
from sim.vllm.scheduler.connector import Connector, KvLoads, fences_of


class CopyingConnector(Connector):
    """Base class: of a server with KV in CPU memory.

    Attributes:
        below: the tiers below CPU memory; None: there are none.
    """

    def __init__(
        self,
        config: VllmConfig,
        memory: KVCacheCoordinator,
        role: Connector,
        below: Tiers | None = None,
    ) -> None:
        """`role`: what the server does besides, by its role."""
        super().__init__()
        self._role = role
        self._memory = memory
        self.most_output_tokens, self.decodes = role.most_output_tokens, role.decodes
        self.keeps_token = role.keeps_token
        self.below = below
        self.stores = () if below is None else below.stores
        self._kv_loads = self.loads = role.loads or KvLoads(config, memory)
        self.looks_up = self.frees_skipped_first = True
        self.fences = fences_of(config) if config.role == BOTH else role.fences
        self._copied = Copied()

    # ---- the workers ---------------------------------------------------------------------------

    def begin_decision(self, now_ns: int, *, has_requests: bool) -> None:
        """A decision begins at this time; `has_requests`: the server has some."""

    def take_copied(self) -> Copied:
        """What the latest decision copies."""
        copied, self._copied = self._copied, Copied()
        return copied

    def copy_ended(self, job: CopyJob) -> bool:
        """The scheduler learns that a copy has ended; whether its request waits for that."""
        raise NotImplementedError

    @property
    def has_jobs(self) -> bool:
        """The scheduler will hear of the end of some copies."""
        raise NotImplementedError

    @property
    def has_ended(self) -> bool:
        """The next decision has something to do, as requests have ended since the last one."""
        raise NotImplementedError

    @property
    def has_more(self) -> bool:
        """A decision right after the latest one may store more."""
        return False

    # ---- the role ------------------------------------------------------------------------------

    def arrived(self, request: VllmRequest) -> None:
        self._role.arrived(request)

    def hold(self, request: VllmRequest) -> None:
        """It has ended for CPU memory: its last chunks are offered with the next decision."""
        self._role.hold(request)
        self.ended(request, is_aborted=False)

    def let_go(self, request: VllmRequest) -> None:
        self._role.let_go(request)

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        return self._role.lease_end_ns(computed_ns, lost_ns)

    def requests(self) -> Iterable[VllmRequest]:
        return self._role.requests()

    def decides(self, *, has_in_flight: bool) -> None:
        self._role.decides(has_in_flight=has_in_flight)

    def share_stores(self, stores: Sequence[Store]) -> None:
        if self.below is not None:
            self.below.use(stores)

    def _begins_to_load(self, request: VllmRequest) -> None:
        """A request has got blocks for what is loaded: it is no transfer from another server."""
        if self._kv_loads.started and self._kv_loads.started[-1][0] is request:
            self._kv_loads.started.pop()

    def _tell_others(self, decision: VllmDecision, partner: Partner) -> None:
        """A decision has been taken."""
        launch = decision.launch
        if launch is not None:
            if self._role.loads is None:
                self._kv_loads.launched(launch.prefill)
            if self._role.fences is None and self.fences is not None:
                self.fences.launched(launch)
        self._role.decided(decision, partner)
        self._kv_loads.started = []
