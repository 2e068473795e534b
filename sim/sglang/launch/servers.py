"""The commands that launch prefill and decode servers of SGLang, and the router before them.

Flags of servers are those of SGLang 0.5.23 (`arg_groups/fields/disagg.py`), flags of the router
those of sglang-router 0.3.2 (`sglang_router/router_args.py`).
"""

from collections.abc import Mapping, Sequence

from sim.engine.partner import BOTH, DECODE, PREFILL
from sim.family.launch_command import LaunchCommand

_SERVER_PORT = 30000
# SGLang's default of --disaggregation-bootstrap-port.
_BOOTSTRAP_PORT = 8998
_POLICIES = {
    "round-robin": "round_robin",
    "random": "random",
    "power-of-two": "power_of_two",
    "prefix-aware": "cache_aware",
}


def role_flags(role: str) -> tuple[str, ...]:
    """The flags of a server of this role."""
    return () if role == BOTH else (f"--disaggregation-mode {role}",)


def router_command(hosts: Mapping[str, Sequence[str]], routers: Mapping[str, str]) -> LaunchCommand:
    """The command of SGLang's router before servers that listen on their default ports.

    Args:
        hosts: the hosts of all servers, by role.
        routers: the kind of the router for servers of each role.
    """
    flags = []
    apart = []
    if PREFILL in hosts:
        flags.append("--pd-disaggregation")
        flags += [f"--prefill http://{h}:{_SERVER_PORT} {_BOOTSTRAP_PORT}" for h in hosts[PREFILL]]
        flags += [f"--decode http://{host}:{_SERVER_PORT}" for host in hosts[DECODE]]
    else:
        flags.append(
            " ".join(["--worker-urls", *(f"http://{h}:{_SERVER_PORT}" for h in hosts[BOTH])])
        )
    for role, kind in routers.items():
        policy = _POLICIES.get(kind)
        if policy is None:
            apart.append(f"router={kind}" if role == BOTH else f"{role} router={kind}")
        else:
            flags.append(f"--policy {policy}" if role == BOTH else f"--{role}-policy {policy}")
    program = "python -m sglang_router.launch_router"
    return LaunchCommand("sglang_router 0.3.2", program, (), tuple(flags), tuple(apart))
