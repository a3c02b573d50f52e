"""The shared language of all parts: records, device peaks, op kinds, the roofline. Standard library only."""
