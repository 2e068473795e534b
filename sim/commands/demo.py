"""`simulate demo`: cache-aware scheduling on a built-in workload, as a table and a picture."""

from importlib.resources import files
from pathlib import Path

from sim.commands.output import print_line, print_table
from sim.commands.run import run_built
from sim.core.errors import InputError
from sim.report.metrics import summarise
from sim.report.tables import comparison_table
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_POLICIES = {"FCFS": "fcfs", "LPM": "lpm"}
_PICTURE = "fcfs-lpm.png"


def demo(folder: Path) -> None:
    """Serve the same traffic under two policies; print the comparison, draw it into `folder`.

    Raises:
        InputError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot make the folder: {error.strerror}") from error
    logs = {name: _serve(policy) for name, policy in _POLICIES.items()}
    print_table(comparison_table({name: summarise(log) for name, log in logs.items()}))
    picture = folder / _PICTURE
    _draw(logs, picture)
    print_line(f"picture: {picture}")


def _serve(policy: str) -> RunLog:
    text = files("sim.commands").joinpath("demo.yaml").read_text(encoding="utf-8")
    loaded = load_scenario_text(text, [f"scheduler.schedule_policy={policy}"], name="demo.yaml")
    return run_built(build(loaded))


def _draw(logs: dict[str, RunLog], path: Path) -> None:
    from sim.report.plots import plot_comparison, save_figure

    title = "The same traffic, first come first served and by longest prefix match"
    save_figure(plot_comparison(logs, title), path)
