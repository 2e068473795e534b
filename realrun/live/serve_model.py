"""Serves a real model behind OpenAI's interface."""

import copy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from realrun.live.answer_params import model_defaults
from realrun.live.answering import AnsweringServer
from realrun.live.served_run import (
    ServedRecorder,
    Unrecorded,
    served_scenario,
    write_served_run,
)
from realrun.live.served_tokens import ServedTokens
from realrun.live.texts import model_texts
from realrun.runner.warm_runner import RunnerOptions
from realrun.server.assemble import end_ids
from realrun.server.servable import check_servable, say_unused
from realrun.server.serve_workload import warm_server
from sim import __version__
from sim.api.address import Address
from sim.api.app import Api, ServerInfo
from sim.api.http_server import listen
from sim.api.http_server import serve as serve_http
from sim.api.metrics import Metrics
from sim.commands.output import check_folder, print_line
from sim.core.errors import say
from sim.families import family_named
from sim.scenario.load import load_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve.

    Attributes:
        address: where to listen, and whom to answer.
        tokenizer: see `model_texts`.
        out: the folder for the log and the traffic of the run; None: nothing is kept.
        max_requests: most requests under way; a further one is refused.
        started: called when clients can send requests, with the port, and with a function that ends
            the server as Ctrl-C does.
    """

    address: Address = field(default_factory=lambda: Address(port=0))
    tokenizer: Path | None = None
    out: Path | None = None
    max_requests: int = 1024
    started: Callable[[int, Callable[[], None]], None] | None = None


def serve_model(
    path: Path, *, overrides: Sequence[str], runner: RunnerOptions, options: ServeOptions
) -> None:
    """Serve clients until Ctrl-C.

    Args:
        path: the scenario; its workload is not served.
        overrides: `--set` options.
        runner: how to run the model.
        options: where and how to serve.

    Raises:
        InputError: the scenario, the device, the tokenizer, the address or the folder is wrong.
    """
    loaded = load_scenario(path, overrides)
    check_servable(loaded)
    say_unused(loaded)
    out = options.out
    if out is not None:
        check_folder(out, path)
    with (
        listen(options.address.host, options.address.port) as listener,
        warm_server(loaded, runner) as server,
    ):
        warm, config = server.warm, server.config(loaded)
        served = loaded if out is None else served_scenario(loaded, config, out)
        model = warm.runner.model
        folder = loaded.base_dir / str(loaded.scenario.model)
        texts = model_texts(
            folder if folder.is_dir() else None, options.tokenizer, model.shape.vocab_size
        )
        # Each thread has a tokenizer of its own: no two may use one at a time.
        tokens = ServedTokens(model.shape.vocab_size, end_ids(model), copy.deepcopy(texts))
        recorder = Unrecorded() if out is None else ServedRecorder()
        name = str(loaded.scenario.model)
        family = family_named(loaded.scenario.scheduler.family)
        metrics = Metrics(family.metric_names(), name, lambda: answering.loads)
        answering = AnsweringServer(
            warm,
            config,
            tokens,
            recorder,
            metrics=metrics,
            defaults=model_defaults(model, loaded.scenario.seed),
            max_requests=options.max_requests,
        )
        address, number = listener.getsockname()[:2]
        print_line(f"serving {name} at http://{address}:{number}/v1 (Ctrl-C ends it)")
        sys.stdout.flush()
        info = ServerInfo(
            model=name,
            max_tokens=answering.most_tokens,
            pool_tokens=config.pool_tokens,
            checks_model=family.checks_model,
            version=str(getattr(config, "version", "")),
            tokenizer=None if options.tokenizer is None else str(options.tokenizer),
            settings={
                **loaded.scenario.scheduler.model_dump(mode="json"),
                "servetwin": __version__,
            },
        )
        started = options.started
        with _ends_by_signal():
            serve_http(
                Api(answering, texts, metrics, info, address=options.address).app(),
                listener,
                answering.run,
                None if started is None else lambda stop: started(number, stop),
            )
        if out is None:
            return
        if not recorder.num_over:
            say("realrun: no request came, so no folder is written")
            return
        write_served_run(out, served, config, warm, recorder)
        print_line(f"{recorder.num_over:,} requests served: see {out}")


@contextmanager
def _ends_by_signal() -> Iterator[None]:
    """A context that Ctrl-C ends, and what ends a process politely, such as `docker stop`."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = None
    if in_main_thread:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
