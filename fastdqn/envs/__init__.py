"""Games: from a name to an environment that an agent can play."""
