"""Readers of what Ascend profilers write."""
