"""The commands of `simulate`. Heavy libraries are imported when a command runs."""
