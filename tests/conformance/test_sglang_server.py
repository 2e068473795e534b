"""What real SGLang servers on a CPU decided, pass by pass (data/README.md).

Our engine gets the events of the server's scheduler in their order. Every pass must decide as the
server's did.
"""

import pytest

from tests.support.sglang_server import Twin, events_of

SMALL, PLAIN, SERIAL, CROWDED = (
    f"sglang-0.5.23-cpu-{name}" for name in ("small", "plain", "serial", "crowded")
)
OLDER, BEFORE = "sglang-0.5.17-cpu-chunked", "sglang-0.5.22-cpu-paged"
# Before the first load a server answers a request of its own. With policy lpm it is matched, and no
# prefixes are marked.
FIRST_REFRESHES = {SMALL: 0, PLAIN: 1, SERIAL: 1, CROWDED: 1, OLDER: 0, BEFORE: 1}
# In how many passes the server launched a step, or had launched one before.
NUM_PASSES = {
    SMALL: {"warm": 236, "burst": 3533, "prefixes": 4094},
    PLAIN: {"warm": 230, "prefixes": 1403, "agents": 1218},
    SERIAL: {"warm": 268, "prefixes": 7326, "burst": 4850},
    CROWDED: {"warm": 536, "long": 2848},
    OLDER: {"warm": 280, "burst": 3902},
    BEFORE: {"warm": 320, "prefixes": 8155},
}


def as_server_says(event):
    """What a pass decided. A decode row of a mixed step looks like a prefill row of one token."""
    words = {name: event.get(name) for name in ("mode", "n", "chunk", "w", "free", "evictable")}
    if words["mode"] == "MIXED":
        words["n"] = [row if row[2] > 1 else row[0] for row in event["n"]]
    # A server that has nothing to do starts the ratio again after the pass, here in it.
    ratio = pytest.approx(event["ratio"], abs=1e-9) if words["mode"] else None
    return words | {"ratio": ratio, "ret": event.get("ret", [])}


def as_we_say(words):
    """The same of what we decided."""
    if words["mode"] == "MIXED":
        rows = [row[0] if isinstance(row, list) and row[2] == 1 else row for row in words["n"]]
        return words | {"n": rows}
    return words if words["mode"] else words | {"ratio": None}


def first_difference(twin, events):
    """How many passes are equal; then ours and the server's, if another one is not."""
    num_equal = 0
    for event in events:
        match event["e"]:
            case "a":
                twin.add(event)
            case "u":
                twin.take_in(event)
            case "i":
                twin.rest(event)
            case "s":
                ours, theirs = as_we_say(twin.decide(event)), as_server_says(event)
                if ours != theirs:
                    return num_equal, ours, theirs
                num_equal += 1
    return num_equal, None, None


@pytest.mark.parametrize("server", NUM_PASSES)
def test_sglang_server_pass_is_decided_as_by_the_server(server):
    """Rows and their tokens, cached tokens, chunks, queue, free and evictable KV, the ratio."""
    num_refreshes = FIRST_REFRESHES[server]
    found = {}
    for load, events in events_of(server).items():
        twin = Twin(server, load, num_refreshes=num_refreshes)
        found[load], ours, theirs = first_difference(twin, events)
        assert ours == theirs, f"pass {found[load] + 1} of {load}"
        num_refreshes = twin.waiting.num_refreshes
    assert found == NUM_PASSES[server]


@pytest.mark.parametrize(
    ("server", "load", "changed", "num_equal"),
    [
        (PLAIN, "warm", {"max_total_tokens": 39_999}, 0),
        (PLAIN, "agents", {"chunked_prefill_size": 2048}, 0),
        # The prefixes of waiting requests are marked as used in other passes: others are evicted.
        (PLAIN, "prefixes", {"num_refreshes": 0}, 314),
        (PLAIN, "prefixes", {"radix_eviction_policy": "lfu"}, 178),
        (SMALL, "burst", {"enable_mixed_chunk": False}, 2),
        (SMALL, "prefixes", {"schedule_policy": "fcfs"}, 9),
        (SERIAL, "burst", {"schedule_conservativeness": 1.0}, 0),
        (SERIAL, "prefixes", {"version": "0.5.10"}, 110),
        (OLDER, "burst", {"version": "0.5.23"}, 18),
        (BEFORE, "warm", {"version": "0.5.17"}, 72),
    ],
)
def test_sglang_server_other_settings_decide_otherwise(server, load, changed, num_equal):
    """The comparison does notice other settings, and the rules of another version."""
    twin = Twin(server, load, **{"num_refreshes": FIRST_REFRESHES[server] + 19} | changed)
    found, ours, theirs = first_difference(twin, events_of(server)[load])
    assert (found, ours == theirs) == (num_equal, False)
