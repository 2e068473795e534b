"""What happened to the replicas of a fleet, as the file fleet.csv."""

from pathlib import Path

from sim.core.messages import describe
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.runlog.servers import FleetEvent, FleetLog, ReplicaState
from sim.tables.csv_table import CsvTable
from sim.tables.table import Table, columns_of

_AT, _REPLICA, _STATE, _GPUS = "t_s", "replica", "state", "gpus"
_MOST = 1 << 20


def write_fleet(fleet: FleetLog, path: Path) -> None:
    """Raises InputError if the file cannot be written."""
    rows = (
        (event.t_ns / NS_PER_S, event.replica, fleet.gpus[event.replica], event.state.value)
        for event in fleet.events
    )
    Table(columns_of(numbers=[_AT, _REPLICA, _GPUS, _STATE]), rows).write_csv(path)


def read_fleet(path: Path) -> FleetLog | None:
    """What `write_fleet` wrote; None: there is no such file, because the fleet did not change.

    Raises:
        InputError: the file cannot be read, or is not of this form.
    """
    if not path.exists():
        return None
    table = CsvTable(path)
    at_s, numbers, gpus = (table.numbers(name) for name in (_AT, _REPLICA, _GPUS))
    events: list[FleetEvent] = []
    of_replica: dict[int, int] = {}
    for row, state in enumerate(table.texts(_STATE)):
        if state not in {known.value for known in ReplicaState}:
            raise table.error(row, _STATE, f"is no state of a replica: {describe(state)}")
        for name, value in ((_REPLICA, numbers[row]), (_GPUS, gpus[row])):
            if not value.is_integer() or value > _MOST:
                raise table.error(row, name, f"must be a whole number, got {value:g}")
        t_ns = round(at_s[row] * NS_PER_S)
        if t_ns > MAX_TIME_NS or (events and t_ns < events[-1].t_ns):
            raise table.error(row, _AT, "times must rise, up to 146 years")
        replica = int(numbers[row])
        of_replica[replica] = int(gpus[row])
        events.append(FleetEvent(t_ns, replica, ReplicaState(state)))
    most = max(of_replica, default=-1)
    return FleetLog(events, [of_replica.get(number, 0) for number in range(most + 1)])
