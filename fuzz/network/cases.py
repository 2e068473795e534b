"""The cases of hostile servers and clients."""

from fuzz.cases import FuzzCase
from fuzz.network.clients import BATCH, hostile_batch
from fuzz.network.servers import SCENARIO, SCRIPT, URL, hostile_script

_REPLAY = f"against {SCRIPT} replay {SCENARIO} --url {URL} --out out --token-timeout-s 0.3"


def network_cases() -> list[FuzzCase]:
    """Servers that `realrun replay` asks, and clients of `simulate serve` and `realrun serve`."""
    validate = "calibrate validate out/scenario.yaml out/measured.jsonl.gz"
    replays = (_REPLAY, f"{_REPLAY} --model m", f"{_REPLAY} && {validate}")
    made = [
        FuzzCase(
            "hostile server", SCRIPT, hostile_script, replays, 24, group="hostile servers",
            bytes_share=0,
        )
    ]  # fmt: skip
    for kind, scenario, weight in (
        ("simulate", "base.yaml", 4),
        ("simulate", "vllm.yaml", 3),
        ("simulate", "disaggregated.yaml", 3),
        ("realrun", "served.yaml", 1),
    ):
        command = f"clients {kind} {scenario} {BATCH}"
        made.append(
            FuzzCase(
                f"hostile clients of {kind} {scenario}",
                BATCH,
                hostile_batch,
                (*[command] * 5, f"{command} out"),
                weight,
                group=f"hostile clients of {kind} serve",
                bytes_share=0,
            )
        )
    return made
