"""From an answer to text: a renderer never asks, a command never draws."""
