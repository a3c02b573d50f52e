"""``npu-smi`` with one board of two chips: the forms in which the vendor's manual shows its answers.

/dev/davinci4 and 5 are chips 0 and 1 of board 2. The clock rises with each question; NPU_SMI_STAND_IN says how to fail.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

MAP = """\
        NPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID                    Chip Name
        2                              0                              0                              4                              Ascend910
        2                              1                              1                              5                              Ascend910
        2                              2                              -                              -                              Mcu
"""  # noqa: E501 - as it is printed
COMMON = """\
        NPU ID                         : {npu}
        Chip Count                     : 2

        Chip ID                        : {chip}
        Memory Usage Rate(%)           : 6
        HBM Usage Rate(%)              : 0
        Aicore Usage Rate(%)           : 37
        Aicore Freq(MHZ)               : 1800
        Aicore curFreq(MHZ)            : {clock}
        Aicore Count                   : 24
        Temperature(C)                 : {temperature}
        NPU Real-time Power(W)         : 195.7

        Chip Name                      : mcu
        Temperature(C)                 : 48
        NPU Real-time Power(W)         : 45.2
"""
ECC = """\
        NPU ID                                   : {npu}
        Chip Count                               : 1

        DDR Single Bit Error Count               : 1
        DDR Double Bit Error Count               : 0
        HBM Single Bit Error Count               : {single}
        HBM Double Bit Error Count               : 2
        HBM Single Bit Aggregate Total Err Cnt   : 900
        HBM Double Bit Aggregate Total Err Cnt   : 9
        HBM Single Bit Isolated Pages Count      : 0
        HBM Double Bit Isolated Pages Count      : 0
        Chip ID                                  : {chip}
"""


def main(words: list[str]) -> int:
    """Answer one question."""
    fails = os.environ.get("PATH", "").rpartition("/")[2]  # the one variable that the agent passes on, beside one more
    if fails == "hangs":
        time.sleep(60)
    if fails == "denied":
        sys.stdout.write("This user has no permission to access the device.\n")
        return 1
    asked = Path(sys.argv[0] + ".asked")
    with asked.open("a") as file:
        file.write(" ".join(words) + "\n")
    count = len(asked.read_text().splitlines())
    if words == ["info", "-m"]:
        sys.stdout.write(MAP)
        return 0
    named = dict(zip(words[1::2], words[2::2], strict=True))
    form = {"common": COMMON, "ecc": ECC}[named["-t"]]
    clock, temperature = (800, "NA") if count < 4 else (1800, 52)
    figures = {
        "clock": clock,
        "temperature": temperature,
        "single": 10 * count,
        "npu": named["-i"],
        "chip": named["-c"],
    }
    sys.stdout.write(form.format(**figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
