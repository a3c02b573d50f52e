"""The command line: commands gather, renderers draw."""
