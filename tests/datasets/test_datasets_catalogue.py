"""The catalogue of data sets."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

from pairity import datasets
from pairity.cli import main
from pairity.datasets import download as files
from pairity.datasets.catalogue import CATALOGUE, DataSet, find_data_set
from pairity.exceptions import DownloadError, InputError, MissingExtraError

CONTENT = b"1,2,3\n"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A data set that is published in a folder of this machine."""
    published = tmp_path / "published" / "owner" / "repo" / "1"
    published.mkdir(parents=True)
    (published / "a.csv").write_bytes(CONTENT)
    monkeypatch.setattr(files, "BASE_URL", (tmp_path / "published").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PAIRITY_DATA", raising=False)
    sha = hashlib.sha256(CONTENT).hexdigest()
    file = files.DataFile("set", "a.csv", sha, "owner/repo", "1", "a.csv")
    return DataSet("set", "A set", "small", "two", "one", "none", "load()", (file,))


def test_files_are_fetched_once(made, tmp_path):
    assert made.fetchable
    assert made.places() == {"a.csv": None}
    (path,) = made.fetch()
    assert path == files.cache_folder() / "set" / "a.csv"
    assert made.places() == {"a.csv": path}
    home = tmp_path / "home"
    home.mkdir()
    assert made.fetch(home) == [path]  # the cache has it
    path.unlink()
    assert made.fetch(home) == [home / "set" / "a.csv"]
    assert made.to_dict(home)["files"][0]["path"] == str(home / "set" / "a.csv")


def test_a_wrong_digest_is_not_kept(made, tmp_path):
    wrong = replace(made, files=(replace(made.files[0], sha256="0" * 64),))
    with pytest.raises(DownloadError, match="SHA-256"):
        wrong.fetch()
    assert wrong.places() == {"a.csv": None}


def test_what_cannot_be_fetched_says_how_to_get_it():
    for name in ("mslr_web10k", "mslr_web30k", "synthetic"):
        assert not CATALOGUE[name].fetchable
        with pytest.raises(InputError, match="has no files to download"):
            CATALOGUE[name].fetch()
    with pytest.raises(InputError, match="Did you mean engineering_students"):
        find_data_set("engineering")


def test_every_loader_exists():
    for entry in CATALOGUE.values():
        name = entry.load.partition("(")[0].removeprefix("pairity.datasets.")
        assert name in datasets.__all__


def test_the_list_as_json(capsys):
    assert main(["datasets", "--format", "json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == list(CATALOGUE)


def test_an_engine_that_is_not_installed(monkeypatch):
    from pairity.cli import options

    monkeypatch.setitem(sys.modules, "xgboost", None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=r"pip install \"pairity\[xgboost\]\""):
        options.make_ranker("xgboost", [], 0)
