"""What a server can be made of, and what SGLang 0.5.23 or this oracle does not combine."""

# In the order in which cases are drawn.
PARTS = ("window", "states", "host", "storage", "prefill", "decode", "stages", "ranks", "drafts")

# What SGLang refuses when it starts: the parts, a part with which it does not, its module and
# function, and its reason.
_REFUSED = (
    ({"prefill", "decode"}, "", "disaggregation_mode", "a server has one role"),
    (
        {"stages", "drafts"},
        "prefill",
        "arg_groups/validation_hook.py, check_pipeline_parallel_compat",
        "of the servers with stages, only prefill servers may draft",
    ),
    (
        {"decode", "window", "host"},
        "",
        "mem_cache/kv_cache_builder.py, validate_decode_radix_cache",
        "with windows, a decode server's radix cache has no host memory below it",
    ),
)
# Combinations that SGLang serves, and for which there is no driver.
_NOT_DRIVEN = (
    ({"ranks", "stages"}, "a pipeline of ranks"),
    ({"ranks", "prefill"}, "a prefill server with ranks"),
    ({"ranks", "decode"}, "a decode server with ranks"),
)


def refusal(parts: set[str]) -> str | None:
    """Why there are no cases of servers with these parts."""
    if unknown := parts - set(PARTS):
        return f"{', '.join(sorted(unknown))}: not one of {', '.join(PARTS)}"
    for refused, unless, where, why in _REFUSED:
        if refused <= parts and unless not in parts:
            return f"SGLang refuses {' with '.join(sorted(refused))}: {where}: {why}"
    if "storage" in parts and "host" not in parts:
        return "storage is below host memory: give host, too"
    for missing, what in _NOT_DRIVEN:
        if missing <= parts:
            return f"there is no driver for {what}"
    return None
