"""A saved model is a folder with files and a manifest that lists them, written atomically.

MODEL_FORMAT.md describes the content of the manifest. This module writes and reads the folder.
"""

import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pairity._utils.json_codec import Entry, Place, parse_document
from pairity._utils.validation import show
from pairity.exceptions import ModelFileError

FORMAT = "pairity model"
VERSION = 2
MANIFEST = "manifest.json"

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*", flags=re.ASCII)
_MAX_MANIFEST_BYTES = 256 * 2**20  # no known model has more than 1 MiB
_REMEDY = "Get the model again from where it was saved."
_CHANGED = "was changed after it was saved"
_GIVE_FOLDER = "Pass the folder that a model was saved to with save()."


# --- writing -------------------------------------------------------------------------------------


def write_model(
    path: str | os.PathLike[str], content: Mapping[str, Any], files: Mapping[str, bytes]
) -> None:
    """Write a model's folder; an error, or Ctrl-C, leaves the previous model in place.

    Parameters
    ----------
    path : str or path
        A folder that does not exist yet, an empty one, or a saved model, which is replaced.
    content : mapping, the entries of the manifest
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
            f"The model cannot be written to {str(folder)!r}: {error.strerror or error}. The "
            "previous content is unchanged. Free some space, or save to another folder."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _pretty(value: Any, margin: str = "\n") -> str:
    """Format JSON with one key per line, and lists on one line unless they hold objects."""
    inner = margin + "  "
    if isinstance(value, dict) and value:
        lines = [f"{json.dumps(key)}: {_pretty(entry, inner)}" for key, entry in value.items()]
        return f"{{{inner}{(',' + inner).join(lines)}{margin}}}"
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return f"[{inner}{(',' + inner).join(_pretty(entry, inner) for entry in value)}{margin}]"
    return json.dumps(value, allow_nan=False)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _move(unfinished: Path, folder: Path) -> None:
    """Give a finished folder its name, and remove the model that had this name."""
    if not folder.exists():
        unfinished.rename(folder)
    elif not _exchange(unfinished, folder):  # else `unfinished` is the old model: it is removed
        old = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.old")
        folder.rename(old)
        try:
            unfinished.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step, and return whether the system can.

    Python has no function for this. On Linux, glibc 2.28 and musl 1.2.6 have renameat2(2).
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    at_fdcwd, rename_exchange = -100, 2  # from linux/fcntl.h and linux/fs.h
    arguments = at_fdcwd, os.fsencode(first), at_fdcwd, os.fsencode(second), rename_exchange
    return bool(renameat2(*arguments) == 0)


def require_output_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder to write to; refuse one with files that a save would remove."""
    folder = Path(path).resolve()  # a link stays a link
    if not folder.parent.is_dir():
        raise ModelFileError(
            f"{str(folder.parent)!r} is not a folder. Save into a folder that exists."
        )
    if not folder.exists():
        return folder
    if not folder.is_dir():
        raise ModelFileError(
            f"{str(folder)!r} is a file, but a model is saved as a folder. Pass another name."
        )
    present = set(os.listdir(folder))
    try:
        own = {MANIFEST, *_read_manifest(folder).entry("files").values} if present else set()
    except ModelFileError as error:
        raise ModelFileError(
            f"{str(folder)!r} contains {sorted(present)[0]!r} and is not a saved model of pairity. "
            "Save to a new folder, or empty this one."
        ) from error
    if present - own:
        raise ModelFileError(
            f"{str(folder)!r} is a saved model, but contains {sorted(present - own)[0]!r}, which "
            "is not part of it and would be lost. Move it elsewhere, or save to another folder."
        )
    return folder


# --- reading -------------------------------------------------------------------------------------


def read_model(path: str | os.PathLike[str]) -> tuple[Entry, dict[str, bytes]]:
    """Read the manifest and the files of a saved model, and check that none was changed."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    listed = manifest.entry("files")
    for name in listed.values:
        if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
            raise listed.place.refuse(f"a list with {show(name)}, not the plain name of a file")
    for name in sorted(set(os.listdir(folder)) - {MANIFEST, *listed.values}):
        detail = "which its manifest does not list. If you put it there, move it away."
        raise _unusable(folder, f"contains {name!r}, {detail}")
    files: dict[str, bytes] = {}
    for name in listed.values:
        entry = listed.entry(name)
        files[name] = _read(folder / name, entry.count("size"))
        if _sha256(files[name]) != entry.read("sha256", str):
            raise _unusable(folder / name, f"{_CHANGED}: its SHA-256 is not that of the manifest.")
    return manifest, files


def _read_manifest(folder: Path) -> Entry:
    if not folder.is_dir():
        wrong = "is a file" if folder.exists() else "does not exist"
        raise ModelFileError(f"{str(folder)!r} {wrong}. {_GIVE_FOLDER}")
    path = folder / MANIFEST
    if not os.path.lexists(path):
        raise ModelFileError(f"{str(folder)!r} contains no {MANIFEST}. {_GIVE_FOLDER}")
    place = Place(f"manifest {str(path)!r}", _REMEDY, ModelFileError)
    content = parse_document(_read(path), FORMAT, place)
    manifest = Entry(content, place)
    version = manifest.count("format_version")
    if version > VERSION:
        import pairity

        raise ModelFileError(
            f"The {place.document} has format version {version}, and this pairity "
            f"({pairity.__version__}) reads versions up to {VERSION}. Update it: pip install "
            "--upgrade pairity"
        )
    if version < 1:
        raise manifest.refuse("format_version", f"{version}")
    digest = content.pop("digest", None)
    with suppress(RecursionError, ValueError):  # nested too deeply, or with an infinite number
        if digest == _digest({"format": FORMAT, **content}):
            return manifest
    raise _unusable(path, f"{_CHANGED}: its digest is not that of its content.")


def _read(path: Path, size: int | None = None) -> bytes:
    """Read a regular file, of this size where one is given."""
    try:
        status = os.lstat(path)
        length = f"has {status.st_size} bytes"
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(path, "is a link or a special file, not a regular file.")
        if size is None and status.st_size > _MAX_MANIFEST_BYTES:
            raise _unusable(path, f"{length}, which is too large for a manifest.")
        if size is not None and status.st_size != size:
            expected = f"but {size} according to its manifest: it was truncated or changed."
            raise _unusable(path, f"{length}, {expected}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise _unusable(path, "is missing.") from error
    except (OSError, MemoryError) as error:
        raise _unusable(path, f"cannot be read: {error}.") from error


def _unusable(path: Path, wrong: str) -> ModelFileError:
    return ModelFileError(f"{str(path)!r} {wrong} {_REMEDY}")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest's content, whatever its spaces and its order of keys."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _sha256(text.encode("ascii"))
