"""Files of public data sets, on disk or downloaded; those with a wrong digest are refused.

They are searched in the folder `data_home` (or that of the environment variable ``PAIRITY_DATA``),
then in the user's cache. Files that are in neither place are downloaded to the cache.
"""

import hashlib
import http.client
import io
import logging
import os
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from pairity._utils.files import open_binary, write_file
from pairity._utils.progress import Progress, Show
from pairity._utils.typing import Array
from pairity.exceptions import DownloadError, InputError

BASE_URL = "https://raw.githubusercontent.com"
VARIABLE = "PAIRITY_DATA"
TIMEOUT = 30.0  # seconds in which no byte arrives

_PIECE = 2**16  # bytes that are read at once
_MOST_BYTES = 2**26  # above all files of the catalogue; a faulty server cannot fill the disk

_log = logging.getLogger(__name__)

Home = str | os.PathLike[str] | None


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: its local name, its digest, and its public source.

    Attributes
    ----------
    folder, name : str
        The local path is ``folder/name``, or ``folder/name.gz`` if the file is compressed.
    sha256 : str
        The digest of the uncompressed bytes.
    repository, commit, path : str, or None
        The source of the original on GitHub: ``owner/name``, the version and the path of the file.
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
        """The address of the raw file, None if it is not published as one file."""
        if self.path is None:
            return None
        return f"{BASE_URL}/{self.repository}/{self.commit}/{quote(self.path)}"


def deltr_file(folder: str, path: str, sha256: str) -> DataFile:
    """Return a file among the data that the authors of DELTR published."""
    return DataFile(
        folder,
        path.rpartition("/")[2],
        sha256,
        "MilkaLichtblau/DELTR-Experiments",
        "042e432fc8dcd9ccf6d0203d63e55572c2554317",
        f"data/{path}",
        "GPL-3.0",
    )


def cache_folder() -> Path:
    """Return the folder of downloads, at the usual place of the platform.

    Examples
    --------
    >>> from pairity.datasets import cache_folder
    >>> cache_folder().is_absolute()
    True
    """
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        return base / "pairity" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pairity"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "pairity"


def places(data_home: Home) -> list[Path]:
    """Return the folders that are searched, in this order."""
    home = os.environ.get(VARIABLE) if data_home is None else data_home
    cache = cache_folder()
    if not home:
        return [cache]
    folder = Path(home).expanduser()
    if data_home is not None and not folder.is_dir():
        raise InputError(f"data_home {folder} is not a folder. Pass a folder, or omit it.")
    return [folder, cache]


def present(file: DataFile, data_home: Home = None) -> Path | None:
    """Return the path of a data file, plain or compressed, if it exists, without a check."""
    names = (f"{file.name}.gz", file.name)
    paths = (folder / file.folder / name for folder in places(data_home) for name in names)
    return next(filter(Path.is_file, paths), None)


def find_data(
    file: DataFile,
    data_home: Home = None,
    *,
    download: bool = True,
    target: Path | None = None,
    progress: Show = "auto",
) -> Path:
    """Return the path of a data file, plain or compressed, after its digest is checked.

    Parameters
    ----------
    file : DataFile
    data_home : path, optional
        By default the environment variable ``PAIRITY_DATA``.
    download : bool
        Whether a file that is not found may be downloaded.
    target : path, optional
        The folder to download to; by default the user's cache.
    progress : {"auto"} or bool
    """
    folders = places(data_home)
    path = present(file, data_home)
    if path is not None:
        if wrong := _wrong_digest(_content(path), file):
            raise InputError(f"{path} {wrong}. Remove it, or replace it by the original.")
        return path
    path = (target or cache_folder()) / file.folder / file.name
    if file.url is None or not download:
        raise DownloadError(_by_hand(file, folders, "was not found"))
    try:
        content = _download(file.url, file.name, progress)
        if wrong := _wrong_digest(content, file):
            raise OSError(f"the download {wrong}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except (OSError, http.client.HTTPException) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        reason = f"could not be downloaded ({message})"
        raise DownloadError(_by_hand(file, folders, reason)) from error
    return path


def read_data(
    file: DataFile, data_home: Home = None, *, download: bool = True, progress: Show = "auto"
) -> bytes:
    """Return the uncompressed bytes of a data file that `find_data` finds."""
    return _content(find_data(file, data_home, download=download, progress=progress))


def read_numbers(file: DataFile, data_home: Home, *, header: int = 0, **options: Any) -> Array:
    """Return the numbers of a CSV file, without `header` lines; the options of `read_data`."""
    content = io.BytesIO(read_data(file, data_home, **options))
    return np.loadtxt(content, delimiter=",", skiprows=header, ndmin=2)


def _content(path: Path) -> bytes:
    with open_binary(path) as source:
        return source.read()


def _wrong_digest(content: bytes, file: DataFile) -> str:
    """Return what is wrong with the uncompressed bytes of a file, or an empty text."""
    digest = hashlib.sha256(content).hexdigest()
    if digest == file.sha256:
        return ""
    return f"has the SHA-256 {digest} (uncompressed, {len(content):,} bytes), not {file.sha256}"


def _download(url: str, name: str, progress: Show) -> bytes:
    _log.info("downloading %s", url)
    content = bytearray()
    request = urllib.request.Request(url, headers={"User-Agent": "pairity"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - BASE_URL is a constant
        length = answer.headers.get("Content-Length") or ""
        expected = int(length) if length.isdigit() else 0
        with Progress(max(1, expected // 1024), f"downloading {name}", progress) as shown:
            while piece := answer.read(_PIECE):
                content += piece
                if len(content) > _MOST_BYTES:
                    raise OSError(f"more than {_MOST_BYTES:,} bytes arrived")
                shown.advance(len(content) // 1024, "kB")
    if expected and len(content) < expected:
        raise OSError(f"the connection ended after {len(content):,} of {expected:,} bytes")
    return bytes(content)


def _by_hand(file: DataFile, folders: list[Path], reason: str) -> str:
    searched = " or ".join(str(folder / file.folder) for folder in folders)
    text = f"{file.folder}/{file.name} {reason}. It is not in {searched}"
    if file.url is None:
        return f"{text}, and is not published as one file. Copy it there, or set {VARIABLE}."
    return (
        f"{text}. Download it from {file.url} ({file.repository} @ {file.commit} : {file.path}) to "
        f" {folders[-1] / file.folder / file.name}, or set {VARIABLE} to a folder with "
        f"{file.folder}/{file.name} (or the same with .gz)."
    )
