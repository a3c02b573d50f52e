"""The ops of one graph capture, in order: names and inputs in the texts that Kineto writes, each distinct call once.

Only what the host knows of a tensor is read (dtype, sizes, strides): nothing is copied, allocated or waited for.
"""

import hashlib
import json
from typing import Any, Dict, List, Optional, Tuple

MOST_OPS = 20_000  # of one capture; a whole training step has a few thousand
MOST_BYTES = 160 * 1024  # of one log as JSON: it travels in a message of at most 256 KiB
MOST_CALL_BYTES = 4096  # of one call's inputs; longer ones (lists of hundreds of tensors) are left out
MOST_ITEMS = 256  # of a list

# What Kineto calls dtypes: the names of the C++ types.
_TYPES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>", "float8_e4m3fn": "c10::Float8_e4m3fn",
    "float8_e5m2": "c10::Float8_e5m2", "float8_e4m3fnuz": "c10::Float8_e4m3fnuz",
    "float8_e5m2fnuz": "c10::Float8_e5m2fnuz", "float8_e8m0fnu": "c10::Float8_e8m0fnu",
}  # fmt: skip
# The numbers of torch's ScalarType, Layout and MemoryFormat, as which such an argument is recorded.
_NUMBERS = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7,
    "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15, "float8_e5m2": 23, "float8_e4m3fn": 24,
    "strided": 0, "contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3,
}  # fmt: skip
_WRAPPED = {bool: "bool", int: "long int", float: "double", complex: "c10::complex<double>"}
_NOTHING: Tuple[str, Any, Any, str] = ("", [], [], "")  # type, sizes, strides, value of an argument that tells nothing


class OpLog:
    """One capture's log. ``over``: it takes no more; then ``cut`` says whether ops are missing."""

    def __init__(self) -> None:
        self.over = False
        self.cut = False
        self.inside = -1  # the call whose op is running
        self._ids: Dict[Any, int] = {}
        self._calls: List[List[Any]] = []
        self._order: List[int] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._order)

    def op(
        self, name: str, key: Any, schema: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], backward: bool
    ) -> int:
        """Note a call; its number. ``key`` and ``backward`` and what the arguments look like tell calls apart."""
        looks = tuple(map(_look, args))
        named = tuple((word, _look(value)) for word, value in kwargs.items()) if kwargs else ()
        whole = (key, looks, named, backward)
        number = self._ids.get(whole)
        if number is None:
            number = self._add(whole, [name, *_texts(schema, args, kwargs), None, int(backward)])
        self._append(number)
        return number

    def kernel(self, name: str, args: Tuple[Any, ...]) -> None:
        """Note a kernel that was launched by name: the running op's, or on its own an op of that name."""
        if self.inside >= 0:
            call = list(self._calls[self.inside])
            call[5] = name
            whole: Any = (self.inside, name)
        else:
            call = [name, *_texts(None, args, {}), name, 0]
            whole = (None, name, tuple(map(_look, args)))
        number = self._ids.get(whole)
        self._append(self._add(whole, call) if number is None else number)

    def _add(self, whole: Any, call: List[Any]) -> int:
        size = len(json.dumps(call))
        if size > MOST_CALL_BYTES:
            call = [call[0][:512], None, None, None, None, *call[5:]]
            size = len(json.dumps(call))
        self._bytes += size
        self._ids[whole] = len(self._calls)
        self._calls.append(call)
        return len(self._calls) - 1

    def _append(self, number: int) -> None:
        self._order.append(number)
        self._bytes += len(str(number)) + 1
        if len(self._order) >= MOST_OPS or self._bytes >= MOST_BYTES:
            self.over = self.cut = True

    def seal(self) -> Optional[str]:
        """The log as JSON text without its key, None without any op; it takes no more."""
        self.over = True
        self._ids = {}
        if not self._order:
            return None
        sealed = {"calls": self._calls, "order": self._order, "cut": self.cut}
        return json.dumps(sealed, separators=(",", ":"))


def key_of(text: str) -> str:
    """Which log this is: captures of the same ops with the same inputs have one."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "stride") and hasattr(value, "shape")


def _look(value: Any) -> Any:
    """What of an argument tells two calls apart, hashable."""
    if _is_tensor(value):
        return value.dtype, tuple(value.shape), _strides(value)
    if isinstance(value, (list, tuple)):
        return (len(value), *map(_look, value[:MOST_ITEMS]))
    if isinstance(value, (bool, int, float)):
        return type(value), value  # 1, 1.0 and True are equal and hash alike, and are different texts
    return value if isinstance(value, str) else str(value)[:64] if _is_word(value) else None


def _is_word(value: Any) -> bool:
    """A dtype, a device, a layout: torch's small constants."""
    return type(value).__module__ == "torch"


def _strides(tensor: Any) -> Tuple[int, ...]:
    try:
        return tuple(tensor.stride())
    except RuntimeError:  # sparse, nested
        return ()


def _texts(schema: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Optional[str]]:
    """The JSON texts of sizes, dtypes, strides and values of all arguments, defaults included as in a profile.

    None of a call with a long list: part of it is not what the call did.
    """
    values = list(args)
    if schema is not None:
        values += [kwargs.get(argument.name, argument.default_value) for argument in schema.arguments[len(args) :]]
    if len(values) > MOST_ITEMS or any(isinstance(v, (list, tuple)) and len(v) > MOST_ITEMS for v in values):
        return [None] * 4
    told = [_told(value) for value in values]
    for i, argument in enumerate(schema.arguments if schema is not None else ()):
        if type(values[i]) in _WRAPPED and str(argument.type) == "Tensor":  # x * 2.5: the number is a tensor's by then
            told[i] = (_WRAPPED[type(values[i])], [], [], "")
    columns = [[entry[i] for entry in told] for i in (1, 0, 2, 3)]
    return [json.dumps(column, separators=(",", ":")) for column in columns]


def _told(value: Any) -> Tuple[str, Any, Any, str]:
    """Type, sizes, strides and value of an argument, as Kineto tells them."""
    if _is_tensor(value):
        return _type(value), list(map(int, value.shape)), list(map(int, _strides(value))), ""
    if isinstance(value, (list, tuple)):
        if value and all(map(_is_tensor, value)):
            sizes = [list(map(int, tensor.shape)) for tensor in value]
            return "TensorList", sizes, [list(map(int, _strides(tensor))) for tensor in value], ""
        if all(isinstance(entry, (bool, int, float)) for entry in value):
            return "ScalarList", [], [], "[%s]" % ", ".join(map(_number, value))
        return _NOTHING
    if isinstance(value, (bool, int, float)):
        return "Scalar", [], [], _number(value)
    word = str(value)[6:] if _is_word(value) else ""  # of anything else even the text may cost a wait
    return ("Scalar", [], [], str(_NUMBERS[word])) if word in _NUMBERS else _NOTHING


def _type(tensor: Any) -> str:
    word = str(tensor.dtype)[6:]
    return _TYPES.get(word, word)


def _number(value: Any) -> str:
    """A number as C++ writes it: "0." and seventeen digits."""
    if isinstance(value, float):
        text = "%.17g" % value
        return text if any(mark in text for mark in ".enia") else text + "."
    return str(value)
