"""Files of public data sets: found on disk or fetched, and never used unless their digest is right.

They are looked for in the folder `data_home` (or that of the environment variable
``PAIRITY_DATA``), then in the user's cache; what is in neither place is downloaded into the cache.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import sys
import tempfile
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pairity._utils.files import open_binary
from pairity._utils.progress import Progress, Show
from pairity.exceptions import DownloadError, InputError

BASE_URL = "https://raw.githubusercontent.com"
VARIABLE = "PAIRITY_DATA"
TIMEOUT = 30.0  # seconds without a byte

_PIECE = 2**16
_MOST_BYTES = 2**26  # no file listed here is as large; a server gone wrong cannot fill the disk

_log = logging.getLogger(__name__)

Home = str | os.PathLike[str] | None


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: its name in our folders, its digest, and its public place.

    Attributes
    ----------
    folder, name : str
        It lies at ``folder/name``, or compressed at ``folder/name.gz``.
    sha256 : str
        Of the bytes before any compression.
    repository, commit, path : str, or None
        Where the original is published: ``owner/name`` on GitHub, which version, which file.
    licence : str, as stated there
    """

    folder: str
    name: str
    sha256: str
    repository: str | None = None
    commit: str | None = None
    path: str | None = None
    licence: str | None = None

    @property
    def url(self) -> str | None:
        """The raw file's address, None where it is not published as such."""
        if self.path is None:
            return None
        return f"{BASE_URL}/{self.repository}/{self.commit}/{quote(self.path)}"


def cache_folder() -> Path:
    """The folder of downloads, in the place that the platform keeps for such things.

    Examples
    --------
    >>> from pairity.datasets import cache_folder
    >>> cache_folder().is_absolute()
    True
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "pairity" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pairity"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "pairity"


def places(data_home: Home) -> list[Path]:
    """The folders that are looked through, in this order."""
    home = os.environ.get(VARIABLE) if data_home is None else data_home
    cache = cache_folder()
    if not home:
        return [cache]
    folder = Path(home).expanduser()
    if data_home is not None and not folder.is_dir():
        raise InputError(
            f"data_home is {folder}, which is no folder. Give an existing one, or leave it out."
        )
    return [folder, cache]


def present(file: DataFile, data_home: Home = None) -> Path | None:
    """Where a data file lies, plain or compressed, if it is there; its digest is not checked."""
    for folder in places(data_home):
        for path in (folder / file.folder / f"{file.name}.gz", folder / file.folder / file.name):
            if path.is_file():
                return path
    return None


def find_data(
    file: DataFile,
    data_home: Home = None,
    *,
    download: bool = True,
    target: Path | None = None,
    progress: Show = "auto",
) -> Path:
    """Where a data file lies, plain or compressed, once it is there and its digest is right.

    Parameters
    ----------
    file : DataFile
    data_home : path, optional
        By default the environment variable ``PAIRITY_DATA``.
    download : bool
        Whether a file that is not there may be fetched.
    target : path, optional
        The folder to download to; by default the user's cache.
    progress : {"auto"} or bool
    """
    folders = places(data_home)
    path = present(file, data_home)
    if path is not None:
        _require_digest(path, _content(path), file)
        return path
    path = (target or cache_folder()) / file.folder / file.name
    if file.url is None or not download:
        raise DownloadError(_by_hand(file, folders, "is not there"))
    try:
        _fetch(file, path, progress)
    except (OSError, http.client.HTTPException) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        reason = f"could not be downloaded ({said})"
        raise DownloadError(_by_hand(file, folders, reason)) from error
    return path


def read_data(
    file: DataFile, data_home: Home = None, *, download: bool = True, progress: Show = "auto"
) -> bytes:
    """The bytes of a data file, uncompressed; found as `find_data` finds it."""
    return _content(find_data(file, data_home, download=download, progress=progress))


def _content(path: Path) -> bytes:
    with open_binary(path) as source:
        return source.read()


def _require_digest(path: Path, content: bytes, file: DataFile) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise InputError(
            f"{path} is not the file it should be: its SHA-256 (uncompressed, {len(content):,} "
            f"bytes) is {found}, not {file.sha256}. Remove it, or put the original there."
        )


def _fetch(file: DataFile, target: Path, progress: Show) -> None:
    """Download to a file of another name, which gets its own once its digest is right."""
    url = file.url
    assert url is not None  # noqa: S101 - the caller asked
    _log.info("downloading %s", url)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as unfinished:
            content = _download(url, file.name, progress)
            found = hashlib.sha256(content).hexdigest()
            if found != file.sha256:
                raise OSError(
                    f"what came has the SHA-256 {found} ({len(content):,} bytes), not {file.sha256}"
                )
            unfinished.write(content)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _download(url: str, name: str, progress: Show) -> bytes:
    pieces: list[bytes] = []
    done = 0
    request = urllib.request.Request(url, headers={"User-Agent": "pairity"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - BASE_URL is ours
        length = answer.headers.get("Content-Length") or ""
        expected = int(length) if length.isdigit() else 0
        with Progress(max(1, expected // 1024), f"downloading {name}", progress) as shown:
            while piece := answer.read(_PIECE):
                pieces.append(piece)
                done += len(piece)
                if done > _MOST_BYTES:
                    raise OSError(f"more than {_MOST_BYTES:,} bytes came")
                shown.advance(done // 1024, "kB")
    if expected and done < expected:
        raise OSError(f"the connection ended after {done:,} of {expected:,} bytes")
    return b"".join(pieces)


def _by_hand(file: DataFile, folders: list[Path], reason: str) -> str:
    looked = " or ".join(str(folder / file.folder) for folder in folders)
    text = f"{file.folder}/{file.name} {reason}. It is not in {looked}"
    if file.url is None:
        return f"{text}, and is not published as one file. Put it there, or set {VARIABLE}."
    return (
        f"{text}. Get it from {file.url} ({file.repository} @ {file.commit} : {file.path}) and put "
        f"it at {folders[-1] / file.folder / file.name}, or set {VARIABLE} to a folder that has "
        f"{file.folder}/{file.name} (or the same with .gz)."
    )
