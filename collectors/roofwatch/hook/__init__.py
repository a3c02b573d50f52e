"""Runs inside the job: takes profiler windows when the agent asks. Standard library and torch only, Python 3.8+."""
