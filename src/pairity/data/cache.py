"""A cache of results that belong to one object, such as an engine's binned data of some queries."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Cache:
    """Keeps one result per name for the lifetime of the object; pickles leave the results out."""

    def cached(self, name: str, settings: Any, make: Callable[[], T]) -> T:
        """The result of `make`, computed once; computed again if the settings differ.

        Engines keep their binned data here, so that every round uses the same data.
        """
        if not self.has_cached(name, settings):
            self.forget(name)  # before its successor takes memory
            self.__dict__.setdefault("_cache", {})[name] = (settings, make())
        result: T = self.__dict__["_cache"][name][1]
        return result

    def has_cached(self, name: str, settings: Any) -> bool:
        """Whether `cached` has a result for this name and these settings."""
        cache = self.__dict__.get("_cache", {})
        return name in cache and cache[name][0] == settings

    def forget(self, name: str) -> None:
        """Drop the result that `cached` keeps under a name."""
        self.__dict__.get("_cache", {}).pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_cache"}
