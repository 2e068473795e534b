"""A twin that runs beside a server: what it measures, what it should, and why both drift apart."""
