"""Independent requests, sent at drawn times or by clients that wait for answers."""

import numpy as np

from sim.workload.arrivals import draw_arrivals_ns, draw_think_ns
from sim.workload.config import ClientsConfig, SyntheticConfig
from sim.workload.context import BuildContext
from sim.workload.lengths import draw_lengths
from sim.workload.prefixes import prefixed_prompts
from sim.workload.table import ClosedLoopWorkload, LazySequence, OpenLoopWorkload, RequestTable


def build_synthetic(config: SyntheticConfig, context: BuildContext) -> OpenLoopWorkload:
    arrival_ns = draw_arrivals_ns(
        config.arrivals,
        config.num_requests,
        context.random.stream("arrivals"),
        key=(*context.key, "arrivals"),
    )
    return OpenLoopWorkload(_draw_requests(config, context, config.num_requests), arrival_ns)


def build_clients(config: ClientsConfig, context: BuildContext) -> ClosedLoopWorkload:
    per_client = config.requests_per_client
    num_requests = config.clients * per_client
    think_ns = draw_think_ns(
        config.think_s, num_requests, context.random.stream("think"), key=(*context.key, "think_s")
    )
    think_ns[::per_client] = 0
    table = _draw_requests(config, context, num_requests, per_client=per_client)
    return ClosedLoopWorkload(table, think_ns, np.arange(config.clients + 1) * per_client)


def _draw_requests(
    config: SyntheticConfig | ClientsConfig,
    context: BuildContext,
    num_requests: int,
    *,
    per_client: int | None = None,
) -> RequestTable:
    random, key = context.random, context.key
    prompts = prefixed_prompts(
        draw_lengths(
            config.prompt_tokens,
            num_requests,
            random.stream("prompt_tokens"),
            key=(*key, "prompt_tokens"),
        ),
        system_tokens=config.system_prompt_tokens,
        prefixes=config.prefixes,
        random=random,
        streams=context.streams,
        key=key,
    )
    output_tokens = draw_lengths(
        config.output_tokens,
        num_requests,
        random.stream("output_tokens"),
        key=(*key, "output_tokens"),
    )

    def client_of(row: int) -> str:
        return str(row // per_client) if per_client else ""

    def client_rid(row: int) -> str:
        return f"{client_of(row)}-{row % per_client}" if per_client else str(row)

    return context.generated_table(
        config,
        rids=LazySequence(num_requests, client_rid),
        prompts=prompts,
        output_tokens=output_tokens,
        output_seed=context.streams.take(num_requests),
        sessions=LazySequence(num_requests, client_of) if per_client else None,
    )
