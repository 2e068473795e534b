"""What the command line does, one file a command. Imports heavy libraries only when it runs."""
