"""The commands of `simulate`, one file each. Heavy libraries are imported when a command runs."""
