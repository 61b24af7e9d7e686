"""What a manifest says, in JSON: settings written and read without running anything.

Whatever JSON has is written as it is. The rest is an object with one key that says what it is::

    {"float": "nan"}                     also "inf" and "-inf"
    {"tuple": [...]}
    {"dict": [[key, value], ...]}
    {"array": [...], "dtype": "<f8"}     numbers in one or two dimensions
    {"object": "InterGroup", "settings": {...}}     one of pairity's own, by its name
    {"not_stored": "the function my_gap"}           what a file cannot hold
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.exceptions import InputError, MissingExtraError, ModelFileError, PairityError

Known = Mapping[str, type]

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_DEEPEST = 20
_LARGEST_ARRAY = 1_000_000


@dataclass(frozen=True)
class NotStored:
    """Stands on a loaded model for a setting that its files could not hold.

    Attributes
    ----------
    what : str, what it was
    """

    what: str

    def __repr__(self) -> str:
        return f"<{self.what}, not in the model's files>"


def require_stored(estimator: Any) -> None:
    """Refuse to fit with a setting that the files of a loaded model did not hold."""
    for name, value in _settings_within(estimator, ()):
        if isinstance(value, NotStored):
            raise InputError(
                f"{'.'.join(name)} was {value.what}, which a model's files do not hold, so the "
                "loaded model predicts but cannot be fitted as it is. Set it again: "
                f"set_params({'__'.join(name)}=...)."
            )


def _settings_within(value: Any, name: tuple[str, ...]) -> Any:
    """All settings of an estimator and of those inside it; engines hand out theirs as copies."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif hasattr(value, "get_params") and hasattr(value, "__dict__") and len(name) < 5:
        inside = [pair for pair in vars(value).items() if not str(pair[0]).endswith("_")]
    for key, part in inside:
        hidden = str(key).startswith("_") or key == "kwargs"
        at = name if hidden else (*name, str(key))
        yield at, part
        yield from _settings_within(part, at)


# --- writing -------------------------------------------------------------------------------------


class _NotStorableError(Exception):
    """Somewhere inside a setting is something that JSON cannot hold."""


def encode(value: Any, known: Known) -> Any:
    """A setting as JSON; whole, or not at all.

    Parameters
    ----------
    known : mapping from name to class, the frozen dataclasses that may be written
    """
    try:
        return _encode(value, known, 0)
    except _NotStorableError:
        return {"not_stored": _describe(value)}


def _encode(value: Any, known: Known, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _NotStorableError
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return encode_number(value)
    if kind is list:
        return [_encode(each, known, depth + 1) for each in value]
    if kind is tuple:
        return {"tuple": [_encode(each, known, depth + 1) for each in value]}
    if kind is dict:
        both = [[_encode(each, known, depth + 1) for each in pair] for pair in value.items()]
        return {"dict": both}
    if kind is np.ndarray and value.dtype.kind in "biuf" and value.ndim in (1, 2):
        if value.size > _LARGEST_ARRAY or value.dtype.itemsize > 8:
            raise _NotStorableError
        return {"array": _encode(value.tolist(), known, depth + 1), "dtype": value.dtype.str}
    if known.get(kind.__name__) is kind:
        settings = {f.name: _encode(getattr(value, f.name), known, depth + 1) for f in fields(kind)}
        return {"object": kind.__name__, "settings": settings}
    raise _NotStorableError


def encode_number(value: float) -> Any:
    """A number, or an object that says which of the others it is."""
    number = float(value)
    return number if math.isfinite(number) else {"float": str(number)}


def encode_array(values: Array) -> Any:
    """Numbers in nested lists; null is NaN."""
    if values.ndim > 1:
        return [encode_array(row) for row in values]
    return [None if math.isnan(each) else encode_number(each) for each in values.tolist()]


def _describe(value: Any) -> str:
    """What it was, for the error of whoever misses it; nothing of its content."""
    if isinstance(value, NotStored):
        return value.what
    if callable(value) and not hasattr(value, "get_params") and hasattr(value, "__name__"):
        return f"the function {value.__name__}"[:200]
    return f"a {type(value).__name__}"[:200]


# --- reading -------------------------------------------------------------------------------------


def decode(value: Any, known: Known, where: str) -> Any:
    """A setting from its JSON, which anybody may have written."""
    return _decode(value, known, where, 0)


def _decode(value: Any, known: Known, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _malformed(where, "nested too deeply")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_decode(each, known, where, depth + 1) for each in value]
    keys = set(value)
    if keys == {"float"}:
        return _not_finite(value["float"], where)
    if keys == {"tuple"} and isinstance(value["tuple"], list):
        return tuple(_decode(value["tuple"], known, where, depth + 1))
    if keys == {"dict"} and isinstance(value["dict"], list):
        pairs = _decode(value["dict"], known, where, depth + 1)
        try:
            return {key: each for key, each in pairs}  # noqa: C416 - checks that they are pairs
        except (TypeError, ValueError) as error:
            raise _malformed(where, show(value)) from error
    if keys == {"array", "dtype"} and isinstance(value["array"], list):
        return _decode_array(value, known, where, depth)
    if keys == {"object", "settings"} and isinstance(value["settings"], dict):
        return _decode_object(value, known, where, depth)
    if keys == {"not_stored"} and isinstance(value["not_stored"], str):
        return NotStored(value["not_stored"])
    raise _malformed(where, show(value))


def _decode_array(value: dict[str, Any], known: Known, where: str, depth: int) -> Any:
    entries, dtype = _decode(value["array"], known, where, depth + 1), value["dtype"]
    if not isinstance(dtype, str) or len(dtype) != 3 or dtype[1] not in "biuf":
        raise _malformed(where, f"an array of type {show(dtype)}")
    try:
        return np.array(entries, dtype=np.dtype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise _malformed(where, show(entries)) from error


def _decode_object(value: dict[str, Any], known: Known, where: str, depth: int) -> Any:
    name = value["object"]
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None:
        raise _malformed(where, f"{show(name)}, which is none of {', '.join(sorted(known))}")
    settings = {
        key: _decode(each, known, f"{where}.{key}", depth + 1)
        for key, each in value["settings"].items()
    }
    return build(kind, settings, where)


def build(kind: Any, settings: Mapping[str, Any], where: str) -> Any:
    """An object from its settings; what its constructor refuses is the file's fault."""
    try:
        return kind(**settings)
    except MissingExtraError:
        raise
    except PairityError as error:
        raise _malformed(where, f"settings of {kind.__name__} that it refuses: {error}") from error
    except Exception as error:  # an engine's own, of whatever kind
        raise _malformed(where, f"settings that {kind.__name__} refuses ({error})") from error


def _not_finite(text: Any, where: str) -> float:
    if not isinstance(text, str) or text not in _NOT_FINITE:
        raise _malformed(where, show(text))
    return _NOT_FINITE[text]


def _malformed(where: str, found: str) -> ModelFileError:
    return ModelFileError(
        f"The manifest's {where} is {found}: not what pairity writes. Get the model again from "
        "where it was saved."
    )


class Entry:
    """An object of a manifest, read key by key; an error says which key is wrong.

    Parameters
    ----------
    values : what was read
    where : str, its place in the manifest
    """

    def __init__(self, values: Any, where: str = "") -> None:
        if not isinstance(values, dict):
            raise _malformed(where or "content", f"{show(values)} rather than an object")
        self.values, self.where = values, where

    def path(self, key: str) -> str:
        """Where a key stands."""
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str) -> Any:
        """What stands there, whatever it is."""
        if key not in self.values:
            raise _malformed(self.path(key), "missing")
        return self.values[key]

    def entry(self, key: str) -> Entry:
        """An object."""
        return Entry(self.get(key), self.path(key))

    def text(self, key: str) -> str:
        """Text."""
        return str(self._of(key, str))

    def count(self, key: str) -> int:
        """A whole number, not negative."""
        value: int = self._of(key, int)
        if value < 0:
            raise _malformed(self.path(key), f"{value}")
        return value

    def number(self, key: str) -> float:
        """A number; null is NaN."""
        return self._number(self.get(key), key)

    def entries(self, key: str) -> list[Entry]:
        """A list of objects."""
        return [Entry(each, f"{self.path(key)}[{k}]") for k, each in enumerate(self.list(key))]

    def list(self, key: str) -> list[Any]:
        """A list."""
        value: list[Any] = self._of(key, list)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self.list(key)
        if not all(isinstance(each, str) for each in values):
            raise _malformed(self.path(key), show(values))
        return tuple(values)

    def array(self, key: str, shapes: tuple[tuple[int, ...], ...] = ()) -> Array:
        """Numbers in nested lists of one or two dimensions, of one of these shapes."""
        rows = self.list(key)
        nested = bool(rows) and all(isinstance(row, list) for row in rows)
        flat = list(chain.from_iterable(rows)) if nested else rows
        numbers = np.array([self._number(each, key) for each in flat], dtype=np.float64)
        if nested:
            if len({len(row) for row in rows}) != 1:
                raise _malformed(self.path(key), "a table with rows of different lengths")
            numbers = numbers.reshape(len(rows), -1)
        if shapes and numbers.shape not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise _malformed(self.path(key), f"of shape {numbers.shape} where {wanted} is needed")
        return numbers

    def setting(self, key: str, known: Known | None = None) -> Any:
        """What `encode` wrote."""
        return decode(self.get(key), known or {}, self.path(key))

    def settings(self, names: tuple[str, ...], known: Known) -> dict[str, Any]:
        """Settings of an object whose parameters are these; one of a later version is left out."""
        for name in sorted(set(self.values) - set(names)):
            raise _malformed(self.where, f"one with {show(name)}, which is unknown")
        return {name: self.setting(name, known) for name in names if name in self.values}

    def refuse(self, key: str, why: str) -> ModelFileError:
        """An error about a key."""
        return _malformed(self.path(key), why)

    def _of(self, key: str, kind: type) -> Any:
        value = self.get(key)
        if type(value) is not kind:
            raise _malformed(self.path(key), f"{show(value)} rather than {_KINDS[kind]}")
        return value

    def _number(self, value: Any, key: str) -> float:
        if value is None:
            return math.nan
        if isinstance(value, dict) and set(value) == {"float"}:
            return _not_finite(value["float"], self.path(key))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _malformed(self.path(key), f"{show(value)} rather than a number")
        try:
            return float(value)
        except OverflowError as error:
            raise _malformed(self.path(key), "too large for a number") from error


_KINDS = {str: "text", int: "a whole number", bool: "true or false", list: "a list"}
