"""The commands of `calibrate`, one file each. Heavy libraries are imported when a command runs."""
