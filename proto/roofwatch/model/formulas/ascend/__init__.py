"""FLOPs and bytes of Ascend kernels by their type, from the inputs and outputs of the kernel itself.

Other sources tell the op's inputs and a kernel's name; CANN's tables tell what each kernel read and wrote, in which
format. So these formulas need no rules for which of an op's kernels does which part.
"""
