"""Routers made from a scenario's section."""

import pytest
from pydantic import TypeAdapter

from sim.des.routers.table import make_router
from sim.scenario.router_section import RouterConfig

ADAPTER = TypeAdapter(RouterConfig)


@pytest.fixture(scope="session")
def router_of():
    """A new router of this kind; other parameters have the defaults of the section."""

    def router(kind, **parameters):
        return make_router(ADAPTER.validate_python({"kind": kind, **parameters}))

    return router
