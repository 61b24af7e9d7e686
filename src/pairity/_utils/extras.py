"""Import optional libraries when they are needed, or say how to install them."""

from importlib import import_module
from typing import Any

from pairity.exceptions import MissingExtraError


def import_extra(module: str, user: str, extra: str) -> Any:
    """Import a module of an optional library.

    Parameters
    ----------
    module : str
    user : str
        What requires the library; the subject of the message.
    extra : str
        The extra of pairity that installs it.
    """
    library = module.partition(".")[0]
    try:
        import_module(library)
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f'{user} requires {library}. Install it with: pip install "pairity[{extra}]"'
        ) from error
