"""The jobs of ``roofwatch demo``: run as scripts, by a Python that has torch. They know nothing of roofwatch."""
