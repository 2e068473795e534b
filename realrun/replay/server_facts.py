"""What a server says of itself: its model, its settings and its metrics, where it offers them."""

import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from realrun.replay.answers import CONNECTION_ERRORS, refusal, said
from sim.core.errors import InputError
from sim.core.files import json_text
from sim.sglang.results.settings import facts_of
from sim.workload.results.model import ServerFacts

# SGLang's address, and its older name.
_SETTINGS = ("/server_info", "/get_server_info")
# vLLM shows its cache's settings as labels of a metric.
_VLLM_CACHE = "vllm:cache_config_info{"
_WAIT_S = 10
# A longer page of settings or metrics is not kept.
_MOST_BYTES = 16 << 20


@dataclass(slots=True)
class AskedServer:
    """What a server answered.

    Attributes:
        model: the model's name.
        settings: as `/server_info` shows them, also of vLLM in its development mode; empty: the
            server has no such address.
        version: of vLLM; empty: not known.
        metrics: Prometheus text, before the run and after it; empty: the server shows none.
    """

    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    metrics: dict[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> ServerFacts:
        """The same, as the results of a benchmark would say it."""
        if self.settings.get("servetwin"):
            known = {key: value for key, value in self.settings.items() if value is not None}
            engine = str(known.get("family", ""))
            return ServerFacts((engine,), model=self.model, scheduler=known)
        if self.settings and "vllm_config" not in self.settings:
            return facts_of(self.settings, {})
        shown = self.metrics.get("before", "")
        if "vllm:" not in shown and not self.version:
            return ServerFacts(model=self.model)
        other = {"version": self.version} if self.version else {}
        return ServerFacts(
            ("vllm",), model=self.model, scheduler=_vllm_settings(shown), other_settings=other
        )

    def as_json(self) -> dict[str, Any]:
        """What is kept beside the run."""
        return {
            "model": self.model,
            "version": self.version,
            "settings": self.settings,
            "metrics": self.metrics,
        }


async def ask_server(session: aiohttp.ClientSession, url: str, model: str | None) -> AskedServer:
    """Ask a server for what it says of itself.

    Raises:
        InputError: there is no server, or it names no model and `model` is None.
    """
    address = f"{url}/v1/models"
    try:
        async with session.get(address, timeout=_timeout(), allow_redirects=False) as response:
            refused = await refusal(response) if response.status != 200 else ""
            models = await _object(response) if not refused else {}
    except (*CONNECTION_ERRORS, ValueError) as problem:
        raise InputError(f"--url {url}: no server answers: {said(problem)}") from None
    name = model or _first_model(models)
    if name is None:
        answer = f": {refused}" if refused else " names no model: give --model"
        raise InputError(f"--url {url}: /v1/models{answer}")
    asked = AskedServer(name)
    for path in _SETTINGS:
        asked.settings = await _optional(session, url + path)
        if asked.settings:
            break
    asked.version = str((await _optional(session, f"{url}/version")).get("version", ""))
    await note_metrics(session, url, asked, "before")
    return asked


async def note_metrics(
    session: aiohttp.ClientSession, url: str, asked: AskedServer, when: str
) -> None:
    """Keep what `/metrics` shows now, if the server has it."""
    try:
        address = f"{url}/metrics"
        async with session.get(address, timeout=_timeout(), allow_redirects=False) as response:
            if response.status == 200:
                lines = (await _text(response)).splitlines()
                asked.metrics[when] = "\n".join(line for line in lines if line[:1] != "#")
    except CONNECTION_ERRORS:
        return


def _first_model(models: dict[str, Any]) -> str | None:
    entries = models.get("data")
    first = entries[0] if isinstance(entries, list) and entries else None
    name = first.get("id") if isinstance(first, dict) else None
    return name if isinstance(name, str) and name else None


def _vllm_settings(metrics: str) -> dict[str, object]:
    lines = [line for line in metrics.splitlines() if line.startswith(_VLLM_CACHE)]
    labels = _labels(lines[0].removeprefix(_VLLM_CACHE)) if lines else {}
    settings: dict[str, object] = {}
    for key, label in (("block_size", "block_size"), ("num_gpu_blocks_override", "num_gpu_blocks")):
        if labels.get(label, "").isdigit():
            settings[key] = int(labels[label])
    if labels.get("enable_prefix_caching") in {"True", "False"}:
        settings["enable_prefix_caching"] = labels["enable_prefix_caching"] == "True"
    return settings


def _labels(text: str) -> dict[str, str]:
    """The labels of a metric: `a="1",b="x"}` gives a and b. Its time grows as the text."""
    parts = text.split('"')
    names = [name.lstrip(",").rstrip("=") for name in parts[::2]]
    return dict(zip(names, parts[1::2], strict=False))


async def _optional(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    try:
        async with session.get(url, timeout=_timeout(), allow_redirects=False) as response:
            return await _object(response) if response.status == 200 else {}
    except CONNECTION_ERRORS:
        return {}


async def _object(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The JSON object of a response; empty if it is none."""
    try:
        reply = json.loads(await _text(response))
        # What cannot be written beside the run, such as NaN or half a character, is no JSON either.
        json_text(reply).encode()
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}


async def _text(response: aiohttp.ClientResponse) -> str:
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            return ""
    return b"".join(parts).decode(errors="replace")


def _timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=_WAIT_S)
