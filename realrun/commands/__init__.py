"""The commands of `realrun`, one file for each. The command line imports them when they run."""
