"""How tables write a number."""

UNDEFINED = "-"


def number(value: float | None) -> str:
    """Three or more significant digits, thousands separated; whole numbers in full."""
    if value is None:
        return UNDEFINED
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def number_as(spec: str, value: float | None) -> str:
    """The number in a format of Python's, such as `+.2f`; a dash where it is undefined."""
    return UNDEFINED if value is None else f"{value:{spec}}"


def yes_or_no(flag: bool | None) -> str:
    return UNDEFINED if flag is None else "yes" if flag else "no"
