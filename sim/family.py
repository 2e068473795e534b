"""What a scheduler family is: everything that tells servers of one engine from those of another."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sim.launch_command import LaunchCommand
from sim.workload.results.names import ResultFormat

if TYPE_CHECKING:
    from sim.engine.core import EngineCore
    from sim.engine.page_pool import PagePool
    from sim.engine.scheduler import BaseScheduler
    from sim.server_section import ImportedSection, ServerSection


class Family:
    """A base class; `sim.families.FAMILIES` maps names to instances.

    Methods import what they need when they are called, so that a run loads its own family alone.

    Attributes:
        name: as in `scheduler: {family: NAME}`.
        title: as people write it.
        result_formats: files of such servers and of their benchmarks that can be imported.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    result_formats: ClassVar[Sequence[ResultFormat]] = ()

    def section(self) -> "type[ServerSection]":
        """The model of the section `scheduler` of a scenario."""
        raise NotImplementedError

    def build(self, config: Any, pool: "PagePool[Any]") -> "BaseScheduler[Any]":
        """A scheduler with an empty queue and an empty cache.

        Args:
            config: settings of this family.
            pool: as many pages as the settings say; a family may keep its own instead.
        """
        raise NotImplementedError

    def check(self, engine: "EngineCore") -> None:
        """Verify what only this family promises between two steps, such as its KV memory.

        Raises:
            InvariantError: naming what does not hold.
        """

    def overlaps(self, settings: Mapping[str, Any]) -> bool:
        """Whether recorded settings of a server (`ServerConfig.as_dict`) overlap scheduling."""
        raise NotImplementedError

    def launch_command(self, section: Any, searched: Collection[str] = ()) -> LaunchCommand:
        """The command that launches a real server with the settings of a section.

        Args:
            section: the settings.
            searched: keys of the section that are given even if they have the server's defaults.
        """
        raise NotImplementedError

    def imported_section(
        self, told: Mapping[str, object], sizes: Sequence[int]
    ) -> "ImportedSection":
        """The section `scheduler` for a measured run.

        Args:
            told: settings as the results tell them, by the section's keys.
            sizes: tokens of each request with as much output as it may have; the pool is to have
                room for all of them at once where the results do not tell its size.
        """
        raise NotImplementedError
