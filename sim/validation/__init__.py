"""How data from outside are checked: the base of all sections, and types of files that are read."""
