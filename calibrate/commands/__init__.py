"""What `calibrate` does, one file a command. Imports heavy libraries only when it runs."""
