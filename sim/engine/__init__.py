"""The engine core and what plugs into it: executors, records, replay."""
