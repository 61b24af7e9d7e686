"""Public names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Exports = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy_exports(package: str, modules: Mapping[str, str]) -> Exports:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : mapping from module to names
        The names, separated by spaces, that each module of the package defines.
    """
    home = {name: module for module, names in modules.items() for name in names.split()}
    public = sorted(home)

    def __getattr__(name: str) -> Any:  # noqa: N807 - the name that Python looks for
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: public, public
