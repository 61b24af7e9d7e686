"""The folder of a saved model is replaced in one step."""

import sys

import pytest

from pairity._utils import model_folder


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is a function of Linux")
def test_two_folders_exchange_their_names(tmp_path):
    """Fails where the C library or the kernel no longer offers renameat2 as expected."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    assert model_folder._exchange(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "old" / "content").read_text() == "new"
    assert (tmp_path / "new" / "content").read_text() == "old"


def test_an_exchange_that_is_not_possible_changes_nothing(tmp_path):
    (tmp_path / "old").mkdir()
    assert not model_folder._exchange(tmp_path / "old", tmp_path / "absent")
    assert (tmp_path / "old").is_dir()
