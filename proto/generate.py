"""Generate the protobuf code beside its .proto, or with --check say whether the committed code is stale (exit 1)."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
SOURCE = "roofwatch/proto/v1/roofwatch.proto"
OUTPUTS = ("roofwatch_pb2.py", "roofwatch_pb2.pyi", "roofwatch_pb2_grpc.py")


def generate(into: Path) -> None:
    """Run the compiler; the path of the .proto carries the product's name, as descriptor names are global."""
    include = Path(protoc.__file__).parent / "_proto"
    options = [f"--python_out={into}", f"--pyi_out={into}", f"--grpc_python_out={into}"]
    if protoc.main(["protoc", f"-I{ROOT}", f"-I{include}", *options, SOURCE]):
        sys.exit(f"{ROOT / SOURCE} does not compile")


def main() -> None:
    """Write, or compare."""
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh, committed = Path(folder) / Path(SOURCE).parent, (ROOT / SOURCE).parent
        stale = [n for n in OUTPUTS if not filecmp.cmp(fresh / n, committed / n, shallow=False)]
    if stale:
        sys.exit(f"{', '.join(stale)}: not what {SOURCE} says; run `make proto` and commit the result")


if __name__ == "__main__":
    main()
