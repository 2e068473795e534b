"""What `simulate import` does: from results, or command lines, to a scenario."""
