"""Files of data sets: found, fetched, and never used with a wrong digest."""

import gzip
import hashlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pairity.datasets import cache_folder, engineering_students, mslr, trec_w3c
from pairity.datasets import download as files
from pairity.datasets.download import DataFile, find_data, read_data
from pairity.exceptions import DownloadError, InputError, PairityError

CONTENT = b"1,2,3\n" * 5000
FILE = DataFile(
    folder="set",
    name="a b.csv",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    repository="owner/repo",
    commit="0" * 40,
    path="data/a b.csv",
)
PUBLISHED = [
    trec_w3c.FILE,
    *engineering_students.FILES.values(),
    mslr.SAMPLE,
    mslr.SAMPLE_INDEX,
    *mslr.EXCERPT.values(),
]


class Server:
    """A web server on this machine, which answers as it is told and counts its requests."""

    def __init__(self):
        self.body, self.status, self.length, self.seen = CONTENT, 200, None, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.seen.append(self.path)
                self.send_response(outer.status)
                if outer.length != "none":
                    self.send_header("Content-Length", str(outer.length or len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("PAIRITY_DATA", raising=False)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache" / "pairity")
    monkeypatch.setattr(files, "BASE_URL", "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "pairity"


@pytest.fixture
def server(cache, monkeypatch):
    server = Server()
    monkeypatch.setattr(files, "BASE_URL", server.url)
    yield server
    server.stop()


def everything_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_download_is_kept_and_found_again(server, cache):
    assert read_data(FILE) == CONTENT
    assert server.seen == [f"/owner/repo/{'0' * 40}/data/a%20b.csv"]
    assert everything_in(cache) == [cache / "set" / "a b.csv"]
    assert read_data(FILE, download=False) == CONTENT
    assert len(server.seen) == 1


def test_a_server_need_not_say_how_long(server, cache):
    server.length = "none"
    assert read_data(FILE) == CONTENT


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        (dict(body=CONTENT[:-1] + b"x"), "SHA-256"),
        (dict(body=b""), "SHA-256"),
        (dict(body=CONTENT[:9000], length=len(CONTENT)), "9,000 of 30,000 bytes"),
        (dict(body=CONTENT[:9000], length="none"), "9,000 bytes"),
        (dict(status=404), "404"),
        (dict(status=500), "500"),
    ],
)
def test_what_is_not_right_leaves_nothing(server, cache, answer, fact):
    for name, value in answer.items():
        setattr(server, name, value)
    with pytest.raises(DownloadError, match=fact):
        read_data(FILE)
    assert everything_in(cache) == []
    server.__dict__.update(body=CONTENT, status=200, length=None)
    assert read_data(FILE) == CONTENT


def test_a_download_without_end(server, cache, monkeypatch):
    monkeypatch.setattr(files, "_MOST_BYTES", 1000)
    with pytest.raises(DownloadError, match="more than 1,000 bytes"):
        read_data(FILE)
    assert everything_in(cache) == []


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_data(FILE)
    assert everything_in(cache) == []


def test_offline(cache):
    with pytest.raises(DownloadError) as caught:
        read_data(FILE)
    message = str(caught.value)
    for fact in (
        "set/a b.csv", "http://127.0.0.1:9/owner/repo/", "owner/repo @ 000", "data/a b.csv",
        str(cache / "set" / "a b.csv"), "PAIRITY_DATA", "refused",
    ):  # fmt: skip
        assert fact in message
    assert isinstance(caught.value, PairityError)
    assert isinstance(caught.value, OSError)
    assert everything_in(cache) == []


def test_no_download_unless_allowed(server, cache):
    with pytest.raises(DownloadError, match="was not found"):
        read_data(FILE, download=False)
    assert server.seen == []


def test_a_cache_that_cannot_be_written(server, cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file, not a folder")
    with pytest.raises(DownloadError, match="could not be downloaded"):
        read_data(FILE)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("how", ["argument", "variable", "cache"])
def test_where_files_are_found(server, cache, tmp_path, monkeypatch, how, zipped):
    home = cache if how == "cache" else tmp_path / "home"
    path = home / "set" / ("a b.csv.gz" if zipped else "a b.csv")
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(CONTENT, 1) if zipped else CONTENT)
    if how == "variable":
        monkeypatch.setenv("PAIRITY_DATA", str(home))
    given = str(home) if how == "argument" else None
    assert read_data(FILE, given) == CONTENT
    assert find_data(FILE, given) == path
    assert server.seen == []


def test_the_cache_comes_after_the_home(server, cache, tmp_path):
    (tmp_path / "home").mkdir()
    assert find_data(FILE, tmp_path / "home") == cache / "set" / "a b.csv"
    assert everything_in(tmp_path / "home") == []


def test_a_file_on_disk_with_a_wrong_digest(cache, tmp_path):
    path = tmp_path / "set" / "a b.csv"
    path.parent.mkdir()
    for content in (CONTENT + b"\n", b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"{path} has the SHA-256 .*{FILE.sha256}"):
            read_data(FILE, tmp_path)
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(CONTENT)[:50])
    with pytest.raises(InputError, match="cannot be read"):
        read_data(FILE, tmp_path)


def test_a_home_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        read_data(FILE, tmp_path / "nowhere")


def test_the_progress_is_shown(server, cache, monkeypatch, capsys):
    monkeypatch.setattr("pairity._utils.progress.PATIENCE", 0.0)
    server.body = CONTENT
    slow = files.Progress.advance

    def advance(self, done, note):
        threading.Event().wait(0.2)
        slow(self, done, note)

    monkeypatch.setattr(files.Progress, "advance", advance)
    read_data(FILE, progress=True)
    assert "downloading a b.csv: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("platform", "variables", "ends"),
    [
        ("linux", {}, "home/.cache/pairity"),
        ("linux", {"XDG_CACHE_HOME": "{}/xdg"}, "xdg/pairity"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache/pairity"),
        ("darwin", {}, "home/Library/Caches/pairity"),
        ("win32", {}, "home/AppData/Local/pairity/Cache"),
        ("win32", {"LOCALAPPDATA": "{}/local"}, "local/pairity/Cache"),
    ],
)
def test_the_cache_lies_where_the_platform_has_it(tmp_path, monkeypatch, platform, variables, ends):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert cache_folder() == tmp_path / ends


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.name)
def test_every_file_has_a_digest_and_a_whole_address(file):
    assert len(bytes.fromhex(file.sha256)) == 32
    if file.url is not None:
        assert file.url.startswith("https://")
        assert len(bytes.fromhex(file.commit)) == 20
        assert file.licence


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.name)
def test_digests_of_the_real_files(file, shared_data):
    if not any((shared_data / file.folder).glob(f"{file.name}*")):
        pytest.skip(f"{file.name} is not among the real data sets")
    assert find_data(file, shared_data, download=False).is_file()
