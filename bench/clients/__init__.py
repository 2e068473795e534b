"""Other people's clients before `simulate serve`: what they measure, and what was simulated."""
