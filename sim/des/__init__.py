"""The discrete-event simulation: SimPy processes for clients and servers, and request routers."""
