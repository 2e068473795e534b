"""Routers as a scenario's section makes them."""

import pytest
from pydantic import TypeAdapter

from sim.des.routers.table import make_router
from sim.scenario.router_section import RouterConfig

ADAPTER = TypeAdapter(RouterConfig)


@pytest.fixture(scope="session")
def router_of():
    """A new router of a kind; what is not given has the scenario's default."""

    def router(kind, **parameters):
        return make_router(ADAPTER.validate_python({"kind": kind, **parameters}))

    return router
