"""A saved model is a folder: files and a manifest that lists them; written whole or not at all.

MODEL_FORMAT.md says what is in the manifest. Here is only how the folder is written and read.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairity._utils.json_codec import Entry
from pairity._utils.validation import show
from pairity.exceptions import ModelFileError

FORMAT = "pairity model"
VERSION = 1
MANIFEST = "manifest.json"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*", flags=re.ASCII)
_LARGEST_MANIFEST = 256 * 2**20
_AGAIN = "Get the model again from where it was saved."


# --- writing -------------------------------------------------------------------------------------


def write_model(
    path: str | os.PathLike[str], content: Mapping[str, Any], files: Mapping[str, bytes]
) -> None:
    """Write a model's folder; an error, or Ctrl-C, leaves what was there before.

    Parameters
    ----------
    path : str or path
        A folder that is not there yet, an empty one, or a saved model, which is replaced.
    content : mapping, what the manifest says
    files : mapping from file name to content
    """
    folder = require_output_folder(path)
    listed = {name: {"size": len(data), "sha256": _sha256(data)} for name, data in files.items()}
    manifest = {"format": FORMAT, "format_version": VERSION, "files": listed, **content}
    text = _pretty({"digest": _digest(manifest), **manifest}) + "\n"
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.unfinished")
    try:
        unfinished.mkdir()
        for name, data in {**files, MANIFEST: text.encode("ascii")}.items():
            _write(unfinished / name, data)
        _move(unfinished, folder)
    except OSError as error:
        raise ModelFileError(
            f"The model cannot be written to {str(folder)!r}: {error.strerror or error}. What was "
            "there before is as it was. Make room, or save elsewhere."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _pretty(value: Any, margin: str = "\n") -> str:
    """JSON for people to read: a key a line, a list on one line unless it holds objects."""
    inner = margin + "  "
    if isinstance(value, dict) and value:
        each = [f"{json.dumps(key)}: {_pretty(part, inner)}" for key, part in value.items()]
        return f"{{{inner}{(',' + inner).join(each)}{margin}}}"
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return f"[{inner}{(',' + inner).join(_pretty(part, inner) for part in value)}{margin}]"
    return json.dumps(value, allow_nan=False)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _move(unfinished: Path, folder: Path) -> None:
    """Give a finished folder its name; the model that had it goes when that is done."""
    if not folder.exists():
        unfinished.rename(folder)
        return
    if _exchange(unfinished, folder):
        return  # the old one is now the unfinished one, which is removed
    old = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.old")
    folder.rename(old)
    try:
        unfinished.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, two: Path) -> bool:
    """Give two folders each other's names in one step, where the system can (Linux)."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(two), both) == 0)


def require_output_folder(path: str | os.PathLike[str]) -> Path:
    """The folder to write to; one that holds something else, to be kept perhaps, is refused."""
    folder = Path(path).resolve()  # through a link, to what it leads to
    if not folder.parent.is_dir():
        raise ModelFileError(
            f"{str(folder.parent)!r} is no folder. Save into a folder that is there."
        )
    if not folder.exists():
        return folder
    if not folder.is_dir():
        raise ModelFileError(
            f"{str(folder)!r} is a file, and a model is saved as a folder. Give another name."
        )
    present = set(os.listdir(folder))
    if not present:
        return folder
    try:
        own = {MANIFEST, *_read_manifest(folder).entry("files").values}
    except ModelFileError as error:
        raise ModelFileError(
            f"{str(folder)!r} is a folder with something else in it, no model of pairity's "
            f"({sorted(present)[0]!r}, for one). Save to a new folder, or empty this one."
        ) from error
    if present - own:
        raise ModelFileError(
            f"{str(folder)!r} is a saved model, but {sorted(present - own)[0]!r} in it is not the "
            "model's and would be lost. Move it elsewhere, or save to another folder."
        )
    return folder


# --- reading -------------------------------------------------------------------------------------


def read_model(path: str | os.PathLike[str]) -> tuple[Entry, dict[str, bytes]]:
    """The manifest of a saved model, and its files, none of them changed since."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    files: dict[str, bytes] = {}
    listed = manifest.entry("files")
    for name in listed.values:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ModelFileError(
                f"The manifest of {str(folder)!r} lists the file {show(name)}, which is no plain "
                f"name of a file in that folder. {_AGAIN}"
            )
    present = set(os.listdir(folder))
    for name in sorted(present - {MANIFEST, *listed.values}):
        raise ModelFileError(
            f"{str(folder)!r} holds {name!r}, which its manifest does not list. Move it away if "
            f"you put it there; otherwise: {_AGAIN[0].lower()}{_AGAIN[1:]}"
        )
    for name in listed.values:
        entry = listed.entry(name)
        data = _read(folder / name, entry.count("size"))
        if _sha256(data) != entry.text("sha256"):
            raise ModelFileError(
                f"{str(folder / name)!r} was changed since it was saved: its SHA-256 is not that "
                f"of the manifest. {_AGAIN}"
            )
        files[name] = data
    return manifest, files


def _read_manifest(folder: Path) -> Entry:
    if not folder.is_dir():
        wrong = "is a file" if folder.exists() else "is not there"
        raise ModelFileError(
            f"{str(folder)!r} {wrong}. Give the folder that a model was saved to with save()."
        )
    path = folder / MANIFEST
    if not os.path.lexists(path):
        raise ModelFileError(
            f"{str(folder)!r} is no saved model: there is no {MANIFEST} in it. Give the folder "
            "that a model was saved to with save()."
        )
    try:
        read = json.loads(_read(path).decode("utf-8"), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{str(path)!r} is no JSON, so it was cut off or changed ({error}). {_AGAIN}"
        ) from error
    if not isinstance(read, dict) or read.get("format") != FORMAT:
        raise ModelFileError(
            f"{str(path)!r} is not a manifest of pairity's: its format is not {FORMAT!r}. Give the "
            "folder that a model was saved to with save()."
        )
    manifest = Entry(read)
    _require_version(manifest, path)
    digest = read.pop("digest", None)
    try:
        same = digest == _digest(read)
    except (ValueError, RecursionError):  # such as NaN, which pairity does not write
        same = False
    if not same:
        raise ModelFileError(
            f"{str(path)!r} was changed since it was saved: its digest is not that of its content. "
            f"{_AGAIN}"
        )
    return manifest


def _require_version(manifest: Entry, path: Path) -> None:
    version = manifest.count("format_version")
    if version > VERSION:
        import pairity

        raise ModelFileError(
            f"{str(path)!r} has format version {version}, and this pairity "
            f"({pairity.__version__}) reads up to {VERSION}. Update it: pip install --upgrade "
            "pairity"
        )
    if version < 1:
        raise manifest.refuse("format_version", f"{version}")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("the same key twice")
    return read


def _read(path: Path, size: int | None = None) -> bytes:
    """The bytes of a plain file, of this size."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError(
                f"{str(path)!r} is a link or something else that is no plain file. {_AGAIN}"
            )
        if size is None and found.st_size > _LARGEST_MANIFEST:
            raise ModelFileError(f"{str(path)!r} is too large to be a manifest. {_AGAIN}")
        if size is not None and found.st_size != size:
            raise ModelFileError(
                f"{str(path)!r} has {found.st_size} bytes, and {size} by its manifest: it was cut "
                f"off or changed. {_AGAIN}"
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelFileError(f"{str(path)!r} is missing. {_AGAIN}") from error
    except (OSError, MemoryError) as error:
        raise ModelFileError(f"{str(path)!r} cannot be read: {error}.") from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest's content, however it is spaced and ordered."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _sha256(text.encode("ascii"))
