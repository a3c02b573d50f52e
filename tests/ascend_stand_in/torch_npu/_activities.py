"""What is C++ in the real one."""

from enum import Enum


class ProfilerActivity(Enum):
    CPU = 1
    NPU = 2
