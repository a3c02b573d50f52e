"""Signatures and texts that were checked once, by number: what senders repeat is compared, not built again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import numpy as np

from roofwatch.model.record import Signature
from roofwatch.proto.decode import TEXTS, Content, checked_signature
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.blocks import Ints
from roofwatch.store.checks import check_signature, check_texts, fail
from roofwatch.store.schema import BOUND_CODES, EVIDENCE_CODES

MAX_KNOWN = 200_000  # signatures remembered: about 200 MB
MAX_TEXT_BYTES = 200 << 20  # of all texts remembered
TEXT_BYTES = 150  # that a text takes beside its characters
NO_CODE = -2  # of a text that is no bound, or no evidence
_WIDTH = len(TEXTS) + 3


class Texts(dict[str, int]):
    """Checked texts by number, from 0 on, in the order in which they were first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []
        self.size = 0

    def __missing__(self, text: str) -> int:
        check_texts(text)
        number = self[text] = len(self.all)
        self.all.append(text)
        self.size += len(text) + TEXT_BYTES
        return number


class Catalog:
    """Grows only: a full one is replaced by a new one. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts = Texts()
        self.ids = np.zeros(1024, np.int64)  # of signatures, by number
        self.signatures: list[Signature] = []
        self._contents = np.zeros((1024, _WIDTH), np.int64)
        self._numbers: dict[int, int] = {}  # by id
        bounds = {self._texts[str(bound)]: code for bound, code in BOUND_CODES.items()}
        evidences = {self._texts[str(evidence)]: code for evidence, code in EVIDENCE_CODES.items()}
        self._coded = len(self._texts.all)
        self._bounds, self._evidences = (_table(codes, self._coded) for codes in (bounds, evidences))

    @property
    def full(self) -> bool:
        """Whether it is time for a new one."""
        return len(self.signatures) > MAX_KNOWN or self._texts.size > MAX_TEXT_BYTES

    def texts(self, strings: Sequence[str]) -> tuple[Ints, list[str]]:
        """The numbers of texts, and the texts themselves as they are remembered, once for all who say them.

        Raises:
            ValueError: what no column of text takes.
        """
        with self._lock:
            numbers = list(map(self._texts.__getitem__, strings))
            return np.array(numbers, np.int64), list(map(self._texts.all.__getitem__, numbers))

    def bounds(self, texts: Ints) -> Ints:
        """The code of each text that is a bound, else NO_CODE."""
        return self._bounds[np.minimum(texts, self._coded)]

    def evidences(self, texts: Ints) -> Ints:
        """The code of each text that is a kind of evidence, else NO_CODE."""
        return self._evidences[np.minimum(texts, self._coded)]

    def numbers(self, columns: pb.Signatures, texts: Ints) -> Ints:
        """The numbers of a dictionary's signatures, whose strings have the numbers ``texts``.

        Raises:
            ValueError: an id is not the hash of its content, or a signature cannot be stored; IndexError: no string.
        """
        ids = np.asarray(columns.id).astype(np.int64)
        contents = _contents(columns, texts, len(ids))
        with self._lock:
            found = np.array([self._numbers.get(i, -1) for i in ids.tolist()], np.int64)
            same = (found >= 0) & (self._contents[found] == contents).all(axis=1)
            for place in np.flatnonzero(~same).tolist():
                found[place] = self._add(int(ids[place]), contents[place])
        return found

    def _add(self, announced: int, content: Ints) -> int:
        """A signature that was not seen before, or not under this id."""
        *texts, flops, size, highest = content.tolist()
        values = (*(self._texts.all[number] for number in texts), flops, size, highest)
        signature = checked_signature(announced, cast("Content", values))
        check_signature(signature)
        number = self._numbers.get(announced)
        if number is not None:  # twice in one dictionary; or another content of the same hash: the first stays
            return number
        number = len(self.signatures)
        if number == len(self.ids):
            self.ids = np.concatenate((self.ids, np.zeros_like(self.ids)))
            self._contents = np.concatenate((self._contents, np.zeros_like(self._contents)))
        self.ids[number], self._contents[number] = announced, content
        self.signatures.append(signature)
        self._numbers[announced] = number
        return number


def _contents(columns: pb.Signatures, texts: Ints, rows: int) -> Ints:
    """A row a signature: the numbers of its texts, then FLOPs, bytes, and the most FLOPs."""
    contents = np.full((rows, _WIDTH), -1, np.int64)
    for at, name in enumerate((*TEXTS, "flops", "bytes", "flops_max")):
        column = np.asarray(getattr(columns, name))
        if name == "flops_max" and not len(column):  # not sent by the first version, nor where there is none
            continue
        if len(column) != rows:
            fail("signature columns of unequal lengths")
        contents[:, at] = texts[column] if at < len(TEXTS) else column
    return contents


def _table(codes: dict[int, int], size: int) -> Ints:
    """Codes by the number of a text; its last place is for all others."""
    table = np.full(size + 1, NO_CODE, np.int64)
    table[list(codes)] = list(codes.values())
    return table
