"""A store under load: a fleet of simulated agents, and what this machine can do."""
