"""The JSON codec: dataclasses by their type hints, and settings of any type by tags.

`to_plain` and `from_plain` translate dataclasses whose types are known. A field is a key (without
a trailing underscore), a tuple or an array a list, an enumeration member its name, NaN is null and
an infinite number ``{"float": "inf"}``.

`encode` and `decode` translate settings, whose types are not known beforehand. Values that JSON
has are written as they are; any other value is an object with a tag::

    {"float": "nan"}                     also "inf" and "-inf"
    {"tuple": [...]}
    {"dict": [[key, value], ...]}
    {"array": [...], "dtype": "<f8"}     numbers in one or two dimensions
    {"object": "InterGroup", "settings": {...}}     a dataclass of pairity, by its name
    {"not_stored": "the function my_gap"}           a value that a file cannot hold

Reading checks every value, and runs nothing. An error names the document and the entry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.exceptions import InputError, MissingExtraError

Known = Mapping[str, type]

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MAX_DEPTH = 20  # of nested settings; those of real models have at most 5 levels
_MAX_ARRAY_SIZE = 1_000_000  # entries of an array among the settings
_KINDS = {str: "text", int: "an integer", bool: "true or false", list: "a list"}


@dataclass(frozen=True)
class Place:
    """A place in a JSON document, which errors name.

    Attributes
    ----------
    document : str, such as "manifest"
    remedy : str, a sentence that ends every error
    error : type of the errors
    path : str, such as "model.history[0]"; empty for the document itself
    """

    document: str
    remedy: str
    error: type[InputError] = InputError
    path: str = ""

    def child(self, key: str | int) -> Place:
        """The place of an entry of this object or list."""
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if self.path else key
        return Place(self.document, self.remedy, self.error, self.path + step)

    def refuse(self, found: str) -> InputError:
        """The error for a value that pairity does not write."""
        path = self.path if self.path.isprintable() else ascii(self.path)
        return self.error(
            f"The {self.document} is not as pairity wrote it: {path[:200] or 'its content'} is "
            f"{found}. {self.remedy}"
        )


def parse_document(text: str | bytes, form: str, place: Place) -> dict[str, Any]:
    """Parse a JSON object whose "format" is `form`, and return its other entries."""
    try:
        text = text if isinstance(text, str) else str(text, "utf-8")
        content = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (TypeError, ValueError, RecursionError) as error:
        raise place.error(f"The {place.document} is not JSON ({error}). {place.remedy}") from error
    if not isinstance(content, dict) or content.pop("format", None) != form:
        raise place.error(f"The {place.document} is not in format {form!r}. {place.remedy}")
    return content


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an object has the same key twice")
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# --- values of known types -----------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """Convert a dataclass, and all that it holds, to values that JSON has."""
    if isinstance(value, float):
        return None if math.isnan(value) else _encode_number(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if is_dataclass(value):
        return {f.name.rstrip("_"): to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (np.ndarray, np.generic)):
        return to_plain(value.tolist())
    if isinstance(value, (tuple, list)):
        return [to_plain(entry) for entry in value]
    return {key: to_plain(entry) for key, entry in value.items()}


def from_plain(kind: Any, value: Any, place: Place) -> Any:
    """Convert what `to_plain` returned back to a value of type `kind`, with every entry checked.

    Types are those of JSON, dataclasses, enumerations, float arrays, ``Any``, ``Literal``, unions,
    ``tuple[...]`` and ``dict[str, ...]``.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or (value is None and NoneType in arguments):
        return value
    if origin in (Union, UnionType):
        *others, last = (argument for argument in arguments if argument is not NoneType)
        for other in others:
            if isinstance(value, get_origin(other) or other):
                return from_plain(other, value, place)
        return from_plain(last, value, place)
    if origin is np.ndarray:
        return _read_array(value, place)
    if origin is tuple:
        return _read_tuple(arguments, value, place)
    if origin is dict:
        entries = _require(dict, value, place).items()
        return {key: from_plain(arguments[1], entry, place.child(key)) for key, entry in entries}
    if is_dataclass(kind):
        return _read_fields(kind, value, place)
    if kind is float:
        return _read_number(value, place)
    if origin is Literal or issubclass(kind, Enum):
        choices = arguments or tuple(kind.__members__)
        if not isinstance(value, str) or value not in choices:
            raise place.refuse(f"{show(value)}, not one of {', '.join(choices)}")
        return value if arguments else kind[value]
    return _require(kind, value, place)


def _require(kind: type, value: Any, place: Place) -> Any:
    if type(value) is not kind:
        raise place.refuse(f"{show(value)}, not {_KINDS.get(kind, 'an object')}")
    return value


def _read_tuple(kinds: tuple[Any, ...], value: Any, place: Place) -> tuple[Any, ...]:
    entries = _require(list, value, place)
    if kinds[-1] is ...:
        if all(type(entry) is kinds[0] for entry in entries):  # long lists of plain values
            return tuple(entries)
        kinds = (kinds[0],) * len(entries)
    if len(kinds) != len(entries):
        raise place.refuse(f"a list of {len(entries)} entries, not {len(kinds)}")
    return tuple(
        from_plain(kind, entry, place.child(index))
        for index, (kind, entry) in enumerate(zip(kinds, entries, strict=True))
    )


_hints = cache(get_type_hints)


def _read_fields(kind: Any, value: Any, place: Place) -> Any:
    entries, hints = _require(dict, value, place), _hints(kind)
    keys = {field.name.rstrip("_"): field.name for field in fields(kind)}
    for key in sorted(set(keys) ^ set(entries)):
        raise place.child(key).refuse("missing" if key in keys else "unknown")
    settings = {
        name: from_plain(hints[name], entries[key], place.child(key)) for key, name in keys.items()
    }
    return build(kind, settings, place)


def _encode_number(value: float) -> Any:
    return float(value) if math.isfinite(value) else {"float": str(float(value))}


def _read_number(value: Any, place: Place) -> float:
    if value is None:
        return math.nan
    if isinstance(value, dict) and set(value) == {"float"}:
        text = value["float"]
        if not isinstance(text, str) or text not in _NOT_FINITE:
            raise place.refuse(show(text))
        return _NOT_FINITE[text]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise place.refuse(f"{show(value)}, not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise place.refuse("an integer that is too large") from error


def _read_array(value: Any, place: Place) -> Array:
    """Read numbers from nested lists of one or two dimensions."""
    rows = _require(list, value, place)
    if not rows or not all(isinstance(row, list) for row in rows):
        return np.array([_read_number(entry, place) for entry in rows], dtype=np.float64)
    if len({len(row) for row in rows}) != 1:
        raise place.refuse("a table with rows of different lengths")
    numbers = [[_read_number(entry, place) for entry in row] for row in rows]
    return np.array(numbers, dtype=np.float64)


def build(kind: Any, settings: Mapping[str, Any], place: Place) -> Any:
    """Call a constructor with settings from a file; any refusal is an error about the file."""
    try:
        return kind(**settings)
    except MissingExtraError:
        raise
    except Exception as error:  # an engine may raise anything
        raise place.refuse(f"refused by {kind.__name__}: {error}") from error


# --- settings of any type ------------------------------------------------------------------------


@dataclass(frozen=True)
class NotStored:
    """Takes the place, on a loaded model, of a setting that a file cannot hold.

    Attributes
    ----------
    what : str, a description of the setting
    """

    what: str

    def __repr__(self) -> str:
        return f"<{self.what}, not in the model's files>"


def require_stored(estimator: Any) -> None:
    """Refuse to fit a loaded model one of whose settings its files could not hold."""
    for name, value in _settings_within(estimator, ()):
        if isinstance(value, NotStored):
            raise InputError(
                f"{'.'.join(name)} was {value.what}, which a model's files cannot hold. The loaded "
                "model predicts, but must be given this setting before it is fitted: "
                f"set_params({'__'.join(name)}=...)."
            )


def _settings_within(value: Any, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all settings of an estimator and of estimators within it, with their names."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.items()
    elif hasattr(value, "get_params") and hasattr(value, "__dict__") and len(name) < 5:
        # Engines return copies from get_params, so read the attributes.
        parts = [part for part in vars(value).items() if not str(part[0]).endswith("_")]
    for key, part in parts:
        hidden = str(key).startswith("_") or key == "kwargs"
        full_name = name if hidden else (*name, str(key))
        yield full_name, part
        yield from _settings_within(part, full_name)


class _NotStorableError(Exception):
    """A setting contains a value that JSON cannot hold."""


def encode(value: Any, known: Known) -> Any:
    """Encode a setting as JSON, completely or not at all.

    Parameters
    ----------
    known : mapping from name to class, the frozen dataclasses that may be written
    """
    try:
        return _encode(value, known, 0)
    except _NotStorableError:
        return {"not_stored": _describe(value)}


def _encode(value: Any, known: Known, depth: int) -> Any:
    def inner(entry: Any) -> Any:
        return _encode(entry, known, depth + 1)

    if depth > _MAX_DEPTH:
        raise _NotStorableError
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return _encode_number(value)
    if kind is list:
        return [inner(entry) for entry in value]
    if kind is tuple:
        return {"tuple": [inner(entry) for entry in value]}
    if kind is dict:
        return {"dict": [[inner(key), inner(entry)] for key, entry in value.items()]}
    if kind is np.ndarray and value.dtype.kind in "biuf" and value.ndim in (1, 2):
        if value.size > _MAX_ARRAY_SIZE or value.dtype.itemsize > 8:
            raise _NotStorableError
        return {"array": inner(value.tolist()), "dtype": value.dtype.str}
    if known.get(kind.__name__) is kind:
        settings = {field.name: inner(getattr(value, field.name)) for field in fields(kind)}
        return {"object": kind.__name__, "settings": settings}
    raise _NotStorableError


def _describe(value: Any) -> str:
    """Describe a setting for the error of `require_stored`, without its content."""
    if isinstance(value, NotStored):
        return value.what
    if callable(value) and not hasattr(value, "get_params") and hasattr(value, "__name__"):
        return f"the function {value.__name__}"[:200]
    return f"a {type(value).__name__}"[:200]


def decode(value: Any, known: Known, place: Place, depth: int = 0) -> Any:
    """Decode what `encode` returned."""

    def inner(entry: Any) -> Any:
        return decode(entry, known, place, depth + 1)

    if depth > _MAX_DEPTH:
        raise place.refuse("nested too deeply")
    if isinstance(value, list):
        return [inner(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    try:
        match value:
            case {"float": _, **rest} if not rest:
                return _read_number(value, place)
            case {"tuple": list(entries), **rest} if not rest:
                return tuple(inner(entries))
            case {"dict": list(entries), **rest} if not rest:
                return dict(inner(entries))
            case {"array": list(entries), "dtype": str(dtype), **rest} if not rest:
                if len(dtype) != 3 or dtype[1] not in "biuf":
                    raise place.refuse(f"an array of type {show(dtype)}")
                return np.array(inner(entries), dtype=np.dtype(dtype))
            case {"object": str(name), "settings": dict(entries), **rest} if not rest:
                if name not in known:
                    raise place.refuse(f"{show(name)}, not one of {', '.join(sorted(known))}")
                settings = {
                    key: decode(entry, known, place.child(key), depth + 1)
                    for key, entry in entries.items()
                }
                return build(known[name], settings, place)
            case {"not_stored": str(what), **rest} if not rest:
                return NotStored(what)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # of dict or np.array
        raise place.refuse(show(value)) from error
    raise place.refuse(show(value))


class Entry:
    """An object of a document, read key by key.

    Parameters
    ----------
    values : the object, as parsed
    place : Place, where it is
    """

    def __init__(self, values: Any, place: Place) -> None:
        self.values: dict[str, Any] = _require(dict, values, place)
        self.place = place

    def get(self, key: str) -> Any:
        """Return the value of a key, which must be there."""
        if key not in self.values:
            raise self.refuse(key, "missing")
        return self.values[key]

    def entry(self, key: str) -> Entry:
        """Return the object at a key."""
        return Entry(self.get(key), self.place.child(key))

    def read(self, key: str, kind: Any) -> Any:
        """Return the value of a key, of type `kind`; see `from_plain`."""
        return from_plain(kind, self.get(key), self.place.child(key))

    def count(self, key: str) -> int:
        """Return an integer that is not negative."""
        value: int = self.read(key, int)
        if value < 0:
            raise self.refuse(key, f"{value}, which is negative")
        return value

    def array(self, key: str, shapes: tuple[tuple[int, ...], ...] = ()) -> Array:
        """Return an array of numbers, of one of these shapes."""
        numbers: Array = self.read(key, Array)
        if shapes and numbers.shape not in shapes:
            needed = " or ".join(map(str, shapes))
            raise self.refuse(key, f"of shape {numbers.shape}, not {needed}")
        return numbers

    def setting(self, key: str, known: Known | None = None) -> Any:
        """Return what `encode` wrote."""
        return decode(self.get(key), known or {}, self.place.child(key))

    def settings(self, names: tuple[str, ...], known: Known) -> dict[str, Any]:
        """Return the settings of an object with these parameters; absent ones are left out."""
        for name in sorted(set(self.values) - set(names)):
            raise self.refuse(name, "unknown")
        return {name: self.setting(name, known) for name in names if name in self.values}

    def refuse(self, key: str, found: str) -> InputError:
        """Return an error about the value of a key."""
        return self.place.child(key).refuse(found)
