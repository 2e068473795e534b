"""What `realrun` does, one file a command. Imports torch only when it runs."""
