"""Disaggregated servers: the invariants hold, whatever the servers and the link are."""

from dataclasses import dataclass, replace
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.des.deployment import Deployment, HandoverOptions, ServerPool
from sim.des.live import LiveServers
from sim.des.routers.router import LeastLoaded, RoundRobin
from sim.des.servers import RunOptions, Servers
from sim.des.transfers.transfers import Transfers
from sim.families import FAMILIES
from sim.latency.kv_memory import KvBytes
from sim.scenario.servers_section import TransferSection
from sim.sglang.cache.settings import StateSettings
from sim.sglang.version_rules import NEWEST
from sim.workload.workload import ScriptedRequest, every_request, listed
from tests.properties.test_host_tier import returning_traffic, tiered_configs
from tests.support.random_drafts import sglang_with_drafts, speculations
from tests.support.random_scenarios import random_scenarios, scheduler_configs
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import serve, serve_deployment
from tests.support.workloads import scripted


@st.composite
def sglang_sides(draw):
    """A prefill server's settings and a decode server's."""
    common = replace(draw(scheduler_configs()), static_batching=None, prefill_delayer=None)
    common = replace(common, decode_max_requests=None)
    if draw(st.booleans()):
        common = sglang_with_drafts(common, draw(speculations(("eagle", "mtp"))))
    size = max(draw(st.integers(60, 600)), 4 * common.page_size)
    return (
        replace(common, role="prefill"),
        replace(
            common,
            role="decode",
            max_total_tokens=size,
            disable_radix_cache=draw(st.booleans()) or common.disable_radix_cache,
            num_reserved_decode_tokens=draw(st.sampled_from((0, 3, 40, 512))),
            disaggregation_decode_extra_slots=draw(st.sampled_from((0, 1, 6))),
            disaggregation_decode_polling_interval=draw(st.sampled_from((1, 1, 2, 5))),
            retraction_host_tokens=draw(st.sampled_from((None, 0, 16, 48, 160))),
        ),
    )


@st.composite
def sides_over_host_memory(draw):
    """Small prefix caches over host memory, without more, with drafts, or with a pool of states."""
    num_extra, num_rows = draw(st.integers(0, 6)), draw(st.integers(1, 8))
    config = replace(draw(tiered_configs()), max_running_requests=num_rows)
    kind = draw(st.sampled_from(("plain", "drafts", "states")))
    if kind == "drafts":
        config = sglang_with_drafts(config, draw(speculations(("eagle",))))
    if kind == "states":
        page, num_tracked = config.page_size, 2 if config.overlaps else 1
        num_slots = num_rows + num_extra
        states = StateSettings(num_slots * (3 + num_tracked), num_tracked, page, 2 * page, page)
        config = replace(config, states=states)
    return (
        replace(config, role="prefill"),
        replace(
            config,
            role="decode",
            num_reserved_decode_tokens=draw(st.sampled_from((0, 3, 40))),
            disaggregation_decode_extra_slots=num_extra,
            disaggregation_decode_polling_interval=draw(st.sampled_from((1, 1, 2, 5))),
        ),
    )


@st.composite
def conversations(draw):
    """Requests, half of which continue the prompt and the answer of an earlier one."""
    requests, asked, arrival_ns = [], [], 0
    for i in range(25):
        arrival_ns += draw(st.sampled_from((0, 5_000_000, 60_000_000)))
        is_first = not asked or draw(st.booleans())
        segments = [] if is_first else draw(st.sampled_from(asked))
        segments = [*segments, (100 + i, draw(st.sampled_from((3, 16, 40))))]
        output = draw(st.integers(1, 30))
        asked.append([*segments, (1 << 20, output)])
        request = scripted(
            f"r{i}", *segments, output=output, arrival_ns=arrival_ns, output_seed=1 << 20
        )
        requests.append(request)
    return requests


@st.composite
def deployments_over_host_memory(draw):
    """Such servers, and prompts that come again when their prefixes have left the device."""
    disaggregated = draw(deployments(sides_over_host_memory()))
    workload = listed(draw(st.one_of(returning_traffic(), conversations())))
    return replace(disaggregated, scenario=replace(disaggregated.scenario, workload=workload))


def _hands_over(config):
    """Under async scheduling, prefill servers of 0.19.0 may end a victim without KV: an error."""
    return config.rules.hands_over and (
        config.rules.drops_victims_tokens or not config.async_scheduling
    )


@st.composite
def vllm_sides(draw):
    """The same of family vllm."""
    config = draw(vllm_configs().filter(_hands_over))
    policy = draw(st.sampled_from(("recompute", "fail")))
    return (
        replace(config, role="prefill"),
        replace(config, role="decode", kv_load_failure_policy=policy),
    )


@dataclass(frozen=True)
class Disaggregated:
    """Traffic, the settings of both sides, and the link between them."""

    scenario: object
    prefill: object
    decode: object
    sizes: tuple[int, int]
    ranks: tuple[int, int]
    link: TransferSection
    router: type

    @property
    def family(self):
        return FAMILIES[self.prefill.family]

    def run(self, **how):
        return serve_deployment(self.scenario.workload, self.deployment(), RunOptions(**how))

    def deployment(self):
        pools = []
        for role, config, size, ranks in zip(
            ("prefill", "decode"), (self.prefill, self.decode), self.sizes, self.ranks, strict=True
        ):
            scenario = replace(self.scenario, config=config, replicas=size, ranks=ranks)
            servers = Servers(config, scenario.latencies(), scenario.host, scenario.front_ends)
            pools.append(ServerPool(role, role, servers, received=KvBytes(1000, 500)))
        handover = HandoverOptions(
            lambda env, ranks, sizes: Transfers(
                env, self.link, sizes, send_queues=self.family.send_queues, num_ranks=ranks
            ),
            message_ns=round(self.link.latency_s * 1e9),
            after_prefill=self.family.decodes_after_prefill,
            chooses_late=self.family.decodes_after_prefill,
        )
        routers = {role: self.router() for role in ("prefill", "decode")}
        return Deployment(pools, routers, handover)


@st.composite
def deployments(draw, sides=None, **how):
    prefill, decode = draw(st.one_of(sglang_sides(), vllm_sides()) if sides is None else sides)
    link = {
        "bandwidth_gb_s": draw(st.sampled_from(("unlimited", 0.001, 0.01, 1.0))),
        "latency_s": draw(st.sampled_from((0.0, 0.0, 0.0001, 0.05))),
        "failure_rate": draw(st.sampled_from((0.0, 0.0, 0.3))),
        "max_retries": draw(st.sampled_from((0, 1))),
    }
    scenario = draw(random_scenarios(st.just(prefill), **how))
    if link["failure_rate"] and prefill.family == "vllm":
        # KV that is lost stays for 480 s, in which a full server may take step after step.
        scenario = replace(scenario, step_s=0.1)
    return Disaggregated(
        scenario,
        prefill,
        decode,
        sizes=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        ranks=(draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, 1, 2)))),
        link=TransferSection.model_validate(link),
        router=draw(st.sampled_from((RoundRobin, LeastLoaded))),
    )


def outcome(served):
    requests, gaps = served.log.requests, served.log.token_gaps
    columns = {name: list(getattr(requests, name)) for name in requests.__dataclass_fields__}
    found = served.text, columns, gaps.gap_ns.tolist(), gaps.count.tolist(), served.summary
    return *found, served.log.meta


@given(deployments(impatient=True))
def test_disaggregated_requests_all_end_however_time_passes(disaggregated):
    """INV-1 to 4, 8, 10, 20: `check` finds nothing, and each request ends, with tiny pools, too.

    INV-12 and INV-6: fast-forward leaves the same log, and so does the same run again.
    """
    served = disaggregated.run(fast_forward=False, check=True)
    assert served.num_ended == disaggregated.scenario.workload.num_requests
    log = outcome(disaggregated.run())
    assert log == outcome(served)
    assert log == outcome(disaggregated.run())


@given(deployments_over_host_memory())
def test_decode_servers_over_host_memory_end_all_requests_however_time_passes(disaggregated):
    """INV-1 to 4, 8, 10, 14, 19, and INV-12: fast-forward leaves the same log.

    Where SGLang ends because its cache has used up all states, a run ends with one line.
    """
    try:
        served = disaggregated.run(fast_forward=False, check=True)
    except InputError as error:
        if "all states are in use" not in str(error):
            raise
        return
    assert served.num_ended == disaggregated.scenario.workload.num_requests
    assert outcome(disaggregated.run()) == outcome(served)


@given(deployments())
def test_disaggregated_tokens_are_each_counted_once(disaggregated):
    """A gap between two tokens of a request is measured once, whichever server made them."""
    log = disaggregated.run().log
    finished = [status == "finished" for status in log.requests.status]
    if all(finished):
        assert log.token_gaps.count.sum() == log.requests.output_tokens.sum() - len(finished)
    first, end, arrival = (
        log.requests.first_token_ns[finished],
        log.requests.finish_ns[finished],
        log.requests.arrival_ns[finished],
    )
    assert (arrival <= first).all()
    assert (first <= end).all()


class Client:
    """Notes when it hears of a request's first token, and of its end."""

    def __init__(self):
        self.live, self.first_ns, self.records = None, {}, {}

    def generated(self, rid, num_tokens):
        assert num_tokens
        self.first_ns.setdefault(rid, self.live.now_ns)

    def over(self, record):
        self.records[record.spec.rid] = record


@given(deployments(), st.data())
def test_live_disaggregated_servers_give_the_times_of_a_simulation(disaggregated, data):
    """Requests that come one by one end as those of a workload do, and so do cancelled ones.

    A client hears of its first token when there is one, also if no step of its server made it.
    """
    requests = []
    for number, request in enumerate(every_request(disaggregated.scenario.workload)):
        requests.append(request.sent_at(number * 7_654_321 + 1))
        requests[-1].spec.gives_up_ns = data.draw(st.sampled_from((None, None, 23_456_789)))
    log = serve_deployment(listed(requests), disaggregated.deployment(), RunOptions()).log.requests
    client = Client()
    live = client.live = LiveServers(disaggregated.deployment(), client)
    happens = [(request.spec.arrival_ns, request, None) for request in requests]
    for request in requests:
        after_ns, request.spec.gives_up_ns = request.spec.gives_up_ns, None
        if after_ns is not None:
            happens.append((request.spec.arrival_ns + after_ns, None, request.spec.rid))
    for time_ns, request, rid in sorted(happens, key=itemgetter(0)):
        while live.next_ns is not None and live.next_ns < time_ns:
            live.advance(live.next_ns)
        live.move_to(time_ns)
        if request is None:
            live.cancel(rid)
        else:
            live.submit(request)
    while live.next_ns is not None:
        live.advance(live.next_ns)
    for row, rid in enumerate(log.rid):
        record, first_ns = client.records[rid], log.first_token_ns[row]
        assert record.finish_ns == log.finish_ns[row]
        assert record.first_token_ns == first_ns
        assert record.output_tokens == log.output_tokens[row]
        if record.output_tokens > 1:
            assert client.first_ns[rid] == first_ns
    assert live.log().requests.rid == log.rid


@given(random_scenarios())
def test_role_both_is_the_server_of_today_to_the_byte(scenario):
    """A pool of servers that compute whole requests leaves the log of those servers."""
    alone = serve(
        scenario.workload,
        scenario.config,
        scenario.latencies(),
        host=scenario.host,
        num_front_ends=scenario.front_ends,
        check=False,
    )
    servers = Servers(scenario.config, scenario.latencies(), scenario.host, scenario.front_ends)
    pooled = serve_deployment(scenario.workload, Deployment.of_servers(servers), RunOptions())
    assert outcome(pooled)[:4] == outcome(alone)[:4]


ROOM = {"max_total_tokens": 1 << 20, "max_running_requests": 4096}
ENDLESS = TransferSection(bandwidth_gb_s="unlimited")


@st.composite
def fast_deployments(draw):
    """SGLang's, with one server a side, room for all requests, and a link that takes no time."""
    prefill, decode = (replace(config, **ROOM) for config in draw(sglang_sides()))
    common = {"context_length": 10_000, "version": NEWEST, "enable_mixed_chunk": False}
    alone = {"disable_radix_cache": True, "host_cache": None}
    # Settings that look at rows that decode: a prefill server has no such rows.
    alone |= {"decode_first": False, "prefill_decode_interval": 0, "min_free_slots_delay": 0}
    if prefill.schedule_policy == "routing-key":
        alone["schedule_policy"] = "fcfs"
    prefill = replace(prefill, **alone, **common)
    decode = replace(decode, disaggregation_decode_polling_interval=1, **common)
    scenario = draw(random_scenarios(st.just(prefill)))
    scenario = replace(scenario, host=None, launch_ns=0, host_s=0.0, replicas=1)
    return Disaggregated(scenario, prefill, decode, (1, 1), (1, 1), ENDLESS, RoundRobin)


def together(disaggregated):
    """The same traffic on one server that computes whole requests, with the prefill's settings."""
    config = replace(disaggregated.prefill, role="both")
    scenario = replace(disaggregated.scenario, config=config)
    return serve(scenario.workload, config, scenario.latencies(), check=False).log.requests


def with_requests(disaggregated, requests):
    return replace(
        disaggregated, scenario=replace(disaggregated.scenario, workload=listed(requests))
    )


@given(fast_deployments())
def test_answers_of_one_token_are_no_later_disaggregated(disaggregated):
    """The least that can be: a decode server without work adds nothing to the prefill."""

    def asks_for_one_token(request):
        spec = request.spec.copy()
        spec.max_new_tokens = 1
        return ScriptedRequest(spec, request.script)

    arrivals = list(disaggregated.scenario.workload.arrivals())
    disaggregated = with_requests(
        disaggregated, [asks_for_one_token(request) for request in arrivals]
    )
    ours, theirs = disaggregated.run().log.requests, together(disaggregated)
    assert dict(zip(ours.rid, ours.finish_ns.tolist(), strict=True)) == dict(
        zip(theirs.rid, theirs.finish_ns.tolist(), strict=True)
    )


@given(fast_deployments())
def test_request_alone_is_no_later_disaggregated(disaggregated):
    """Nothing lies between the steps of a single request, whichever servers take them."""
    first = next(disaggregated.scenario.workload.arrivals())
    disaggregated = with_requests(disaggregated, [first])
    ours, theirs = disaggregated.run().log.requests, together(disaggregated)
    for name in ("first_token_ns", "finish_ns", "output_tokens"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
