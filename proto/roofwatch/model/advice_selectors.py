"""A short expression that selects one kernel by its name in the vendors' profilers.

Kernel names are hostile text, and every tool writes templates in its own way ("<(int)4" or "<4", "<unnamed>" or
"(anonymous namespace)"). So an expression holds only words of letters, digits and "_", and ``.*`` between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

LONGEST = 48  # of an expression: with its option it fits a line of 80 columns
_HEAD = 16  # characters of a long name that are kept before the words which tell it from others
_NAME = 2048  # characters of a name that are looked at
_WORDS = 400  # words of a name that are looked at
_OTHERS = 2000  # names that one is told from
_WORD = re.compile(r"[A-Za-z0-9_]+")
_BIT = re.compile(r"[A-Za-z0-9]+")
_LONG_WORD = 20  # characters; a longer one is taken apart at its "_", as cutlass's names of tiles are
_UNNAMED = "(anonymous namespace)::"
_NOISE = frozenset({"at", "native", "void", "const", "anonymous", "namespace", "unnamed", "std", "detail", "lambda"})


@dataclass(frozen=True, slots=True)
class Selector:
    """``words`` in this order, anything between them, searched in the function's base name or in all of its name."""

    words: tuple[str, ...]
    demangled: bool  # whether the words are of the whole name, with template arguments
    exact: bool = False  # the one word is the whole base name

    @property
    def expression(self) -> str:
        """As a regular expression."""
        return ".*".join(self.words)

    def matches(self, kernel: str) -> bool:
        """Whether the expression selects a kernel of this name."""
        text = kernel[:_NAME] if self.demangled else base_name(kernel)
        if self.exact:
            return text == self.words[0]
        return _in_order(self.words, text)


@lru_cache(maxsize=8192)
def base_name(kernel: str) -> str:
    """A function's name without return type, namespaces, template arguments and parameters; "" where there is none.

    ``void at::native::reduce_kernel<512, 1, Op<float>>(Op<float>)`` is ``reduce_kernel``.
    """
    outer = _outermost(kernel[:_NAME].replace(_UNNAMED, ""))
    words = outer.split()
    return words[-1].rpartition("::")[2] if words else ""


def _outermost(name: str) -> str:
    """The characters outside of all brackets; ``>`` inside parentheses is an operator."""
    kept: list[str] = []
    stack: list[str] = []
    for character in name:
        if character in "<(":
            stack.append(character)
        elif character == ">" and stack and stack[-1] == "<":
            stack.pop()
        elif character == ")" and "(" in stack:
            while stack.pop() != "(":
                pass
        elif not stack:
            kept.append(character)
    return "".join(kept)


def select(kernel: str, others: Iterable[str]) -> Selector | None:
    """The shortest expression that selects this kernel and, where words can tell them apart, none of the others.

    None where the name has no word, or none that fits.
    """
    others = [name for name in dict.fromkeys(others) if name != kernel][:_OTHERS]
    base = base_name(kernel)
    plain = bool(_WORD.fullmatch(base))
    if plain and len(base) <= LONGEST:
        if all(base_name(name) != base for name in others):
            return Selector((base,), demangled=False, exact=True)
        alike = [_after(name, base) for name in others if base in name[:_NAME]]
        return Selector(_told_apart(base, _words(_after(kernel, base)), alike), demangled=True)
    if plain:
        prefix = base[:LONGEST]  # as much of it as fits, if that is enough; it may leave out kernels not seen here, too
        if not any(prefix in base_name(name) for name in others):
            return Selector((prefix,), demangled=False)
        head = base[:_HEAD].rpartition("_")[0] or base[:_HEAD]
        bases = (base_name(name) for name in others)
        alike = [name[len(head) :] for name in bases if name.startswith(head) and name != base]
        return Selector(_told_apart(head, _BIT.findall(base[len(head) :]), alike), demangled=False)
    words = [word for word in _words(kernel[:_NAME]) if len(word) <= LONGEST]
    if not words:
        return None
    alike = [_after(name, words[0]) for name in others if words[0] in name[:_NAME]]
    return Selector(_told_apart(words[0], words[1:], alike), demangled=True)


def _after(kernel: str, head: str) -> str:
    """What follows the head in a name: of a base name, its template arguments and parameters."""
    return kernel[:_NAME].partition(head)[2]


def _words(text: str) -> list[str]:
    """The words that can tell names apart."""
    found = []
    for word in _WORD.findall(text)[:_WORDS]:
        found += _BIT.findall(word) if len(word) > _LONG_WORD else [word]
    return [word for word in found[:_WORDS] if word not in _NOISE]


def _told_apart(head: str, words: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The head, and of the words that follow it those that are needed to leave out the others, in their order.

    Each step takes the word that leaves out most of the others, as long as there is room.
    """
    chosen: list[int] = []
    left = [other for other in others if _in_order((), other)]
    room = LONGEST - len(head)
    while left:
        best, best_left = -1, left
        for at, word in enumerate(words):
            if at in chosen or len(word) + 2 > room:
                continue
            wanted = [words[i] for i in sorted([*chosen, at])]
            still = [other for other in left if _in_order(wanted, other)]
            if len(still) < len(best_left):
                best, best_left = at, still
        if best < 0:
            break
        chosen.append(best)
        room -= len(words[best]) + 2
        left = best_left
    return (head, *(words[i] for i in sorted(chosen)))


def _in_order(words: Sequence[str], text: str) -> bool:
    """Whether the words are in the text, one after the other."""
    at = 0
    for word in words:
        found = text.find(word, at)
        if found < 0:
            return False
        at = found + len(word)
    return True
