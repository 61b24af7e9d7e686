"""An interrupted fit resumes from its checkpoint; a checkpoint of another fit is refused."""

import json

import numpy as np
import pytest

from pairity import DampedStep, FairRanker, LinearRanker
from pairity.datasets import make_biased_ranking
from pairity.exceptions import InputError, TargetNotReachedWarning
from pairity.rankers import adapters

DATA = make_biased_ranking(40, 20, n_groups=3, random_state=3)
KNOWN = {name: getattr(DATA, name) for name in ("X", "y", "qid", "sensitive_features")}
SETTINGS = {  # which make several rounds, although the violation is within the noise
    "constraint": "statistical", "tolerance": 0.004, "solver": DampedStep(patience_in_noise=8),
}  # fmt: skip


class Interrupted(LinearRanker):
    """Fails in the third training of the process."""

    trained = 0
    ends_at = 3

    def fit_pairs(self, queries, table, *, previous=None):
        type(self).trained += 1
        if type(self).trained == type(self).ends_at:
            raise MemoryError("the machine is gone")
        return super().fit_pairs(queries, table, previous=previous)


@pytest.fixture
def interrupted(monkeypatch):
    monkeypatch.setattr(Interrupted, "trained", 0)
    monkeypatch.setattr(Interrupted, "ends_at", 3)
    monkeypatch.setattr(Interrupted, "__module__", "pairity.rankers.linear")
    monkeypatch.setattr(adapters, "ranker_class", lambda entry: Interrupted)
    monkeypatch.setattr("pairity.reweighting.checkpoints.ranker_class", lambda entry: Interrupted)
    return Interrupted


@pytest.mark.filterwarnings("ignore::pairity.exceptions.TargetNotReachedWarning")
def test_a_resumed_fit_ends_as_if_it_had_not_been_interrupted(tmp_path, interrupted):
    uninterrupted = FairRanker(LinearRanker(), **SETTINGS).fit(**KNOWN)
    assert len(uninterrupted.history_) > 3
    model = FairRanker(interrupted(), **SETTINGS, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(MemoryError, match="gone"):
        model.fit(**KNOWN)
    content = json.loads((tmp_path / "checkpoint" / "rounds.json").read_text())
    assert [entry["number"] for entry in content["rounds"]] == [0, 1]
    interrupted.trained, interrupted.ends_at = 0, -1
    model.fit(**KNOWN)
    assert interrupted.trained == len(uninterrupted.history_) - 2
    np.testing.assert_array_equal(model.lambda_, uninterrupted.lambda_)
    np.testing.assert_array_equal(model.predict(DATA.X), uninterrupted.predict(DATA.X))
    assert [entry.violation for entry in model.history_] == [
        entry.violation for entry in uninterrupted.history_
    ]
    interrupted.trained = 0
    again = FairRanker(interrupted(), **SETTINGS, checkpoint=tmp_path / "checkpoint").fit(**KNOWN)
    assert interrupted.trained == 0
    np.testing.assert_array_equal(again.predict(DATA.X), uninterrupted.predict(DATA.X))


def test_more_rounds_resume_from_fewer(tmp_path):
    few = FairRanker(**SETTINGS, max_rounds=1, checkpoint=tmp_path)
    with pytest.warns(TargetNotReachedWarning):
        few.fit(**KNOWN)
    seconds = [entry.seconds for entry in few.history_]
    more = FairRanker(**SETTINGS, max_rounds=2, checkpoint=str(tmp_path))
    with pytest.warns(TargetNotReachedWarning):
        more.fit(**KNOWN)
    assert [entry.seconds for entry in more.history_][:2] == seconds
    assert len(more.history_) == 3


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    FairRanker(max_rounds=0, checkpoint=tmp_path).fit(**KNOWN)
    other = {**KNOWN, "X": DATA.X + 1e-9}
    with pytest.raises(InputError, match=r"another fit: data was .*Remove the folder"):
        FairRanker(max_rounds=0, checkpoint=tmp_path).fit(**other)
    with pytest.raises(InputError, match="constraint was"):
        FairRanker(constraint="intra", max_rounds=0, checkpoint=tmp_path).fit(**KNOWN)
    with pytest.raises(InputError, match="ranker was"):
        FairRanker(LinearRanker(alpha=1.0), max_rounds=0, checkpoint=tmp_path).fit(**KNOWN)
    two = {**KNOWN, "sensitive_features": (DATA.sensitive_features == "group 1").astype(int)}
    with pytest.raises(InputError, match="another fit"):
        FairRanker(max_rounds=0, checkpoint=tmp_path).fit(**two)


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"contains other files, such as 'thesis\.tex'"):
        FairRanker(checkpoint=tmp_path).fit(**KNOWN)
    with pytest.raises(InputError, match="not a folder that can be used"):
        FairRanker(checkpoint=tmp_path / "thesis.tex").fit(**KNOWN)
    (tmp_path / "thesis.tex").unlink()
    (tmp_path / "rounds.json").write_text('{"format": ')
    with pytest.raises(InputError, match=r"is not JSON.*Remove the folder"):
        FairRanker(checkpoint=tmp_path).fit(**KNOWN)


def test_a_ranker_that_cannot_be_saved_has_no_checkpoint(tmp_path):
    class Own(LinearRanker):
        file_name = ""

    with pytest.raises(InputError, match="cannot save a Own"):
        FairRanker(Own(), checkpoint=tmp_path).fit(**KNOWN)
