"""check_method: sound methods pass, and each broken method gets its own error."""
# ruff: noqa: ARG002 - methods have the arguments of their kind, needed or not

from dataclasses import replace

import numpy as np
import pytest

from pairity import FairRanker, InputError, LinearRanker
from pairity.baselines.methods import Method, Rankings, as_method
from pairity.exceptions import ContractError
from pairity.testing import METHOD_CHECKS, check_method, method_checks

# --- a third party's method, and ways to get it wrong ---------------------------------------------


class Plain:
    """Least squares on labels, by hand."""

    name, needs_group, settings = "plain", False, {"slack": 0.1}

    def method(self):
        return Method(self.name, self.fit, self.needs_group, self.settings)

    def fit(self, train, seed):
        coef = self.learn(train, seed)
        return lambda queries: self.score(coef, queries)

    def learn(self, train, seed):
        return np.linalg.lstsq(train.X, train.y - train.y.mean())[0]

    def score(self, coef, queries):
        return queries.X @ coef


class Shifts(Plain):
    """After training: members of the first group are moved up."""

    name, needs_group = "shifts", True

    def score(self, coef, queries):
        return queries.X @ coef + 0.3 * (queries.group == 0)


class Draws(Plain):
    """Two rankings for each query: the plain one and its mirror."""

    name = "draws"

    def score(self, coef, queries):
        scores = queries.X @ coef
        probability = np.tile([0.75, 0.25], (queries.n_queries, 1))
        return Rankings(np.column_stack([scores, -scores]), probability)


class Nameless(Plain):
    name = " "


class TwoLines(Plain):
    name = "plain\nmethod"


class NumberedSettings(Plain):
    settings = {1: 2}  # noqa: RUF012


class AddressInSettings(Plain):
    settings = {"ranker": object()}  # noqa: RUF012


class NotSaid(Plain):
    needs_group = None


class OneScoreTooMany(Plain):
    def score(self, coef, queries):
        return np.r_[queries.X @ coef, 0.0]


class NotFinite(Plain):
    def score(self, coef, queries):
        return np.log(queries.X @ coef - (queries.X @ coef).min())

    def fit(self, train, seed):
        scorer = super().fit(train, seed)

        def quiet(queries):
            with np.errstate(divide="ignore"):
                return scorer(queries)

        return quiet


class LearnsNothing(Plain):
    def score(self, coef, queries):
        return np.zeros(queries.n_items)


class HalfTheTime(Draws):
    def score(self, coef, queries):
        rankings = super().score(coef, queries)
        return replace(rankings, probability=rankings.probability / 2)


class RankingsOfOthers(Draws):
    def score(self, coef, queries):
        rankings = super().score(coef, queries)
        return replace(rankings, scores=rankings.scores[1:])


class Cheats(Plain):
    def score(self, coef, queries):
        return queries.X @ coef + queries.y


class CentresAll(Plain):
    def score(self, coef, queries):
        scores = queries.X @ coef
        return scores - scores.mean()


class NumbersQueries(Plain):
    def score(self, coef, queries):
        return queries.X @ coef * (1 + queries.query)


class ScalesInPlace(Plain):
    def learn(self, train, seed):
        train.X[:] = train.X / 2
        return super().learn(train, seed)


class ScalesTheTest(Plain):
    def score(self, coef, queries):
        queries.X[:] = queries.X / 2
        return queries.X @ coef


class LearnsInTheMethod(Plain):
    def learn(self, train, seed):
        self.coef = super().learn(train, seed)

    def score(self, coef, queries):
        return queries.X @ self.coef


class HidesItsUse(Shifts):
    needs_group = False


class SaysItForNothing(Plain):
    needs_group = True


class DrawsAnywhere(Plain):
    def learn(self, train, seed):
        return super().learn(train, seed) + np.random.random(4)  # noqa: NPY002


class NeedsEveryGroup(Plain):
    def learn(self, train, seed):
        if train.n_missing:
            raise ValueError("an item has no group")
        return super().learn(train, seed)


class IndexesTheMissing(Shifts):
    def score(self, coef, queries):
        return queries.X @ coef + np.linspace(0.3, 0.0, queries.n_groups)[queries.group]


class NeedsThree(Plain):
    def learn(self, train, seed):
        return super().learn(train, seed) + np.bincount(train.group)[2] * 0.0


class CannotBeStopped(Plain):
    def learn(self, train, seed):
        coef = np.zeros(4)
        try:
            for _ in range(20):
                coef = self.step(train, coef)
        except KeyboardInterrupt:
            pass
        return coef

    def step(self, train, coef):
        residual = train.y - train.y.mean() - train.X @ coef
        return coef + 0.3 * train.X.T @ residual / len(residual)


BROKEN = [
    (Nameless, "description", "one line of text"),
    (TwoLines, "description", "one line of text"),
    (NumberedSettings, "description", "mapping from names"),
    (AddressInSettings, "description", "address"),
    (NotSaid, "description", "needs_group is None"),
    (OneScoreTooMany, "scores", "121 entries"),
    (NotFinite, "scores", "infinity"),
    (LearnsNothing, "scores", "same score"),
    (HalfTheTime, "scores", "add up to 0.5"),
    (RankingsOfOthers, "scores", r"\(119, 2\)"),
    (Cheats, "labels", "labels of the test queries reversed"),
    (CentresAll, "other queries", "1 of the test queries"),
    (NumbersQueries, "other queries", "by itself"),
    (ScalesInPlace, "data", "fitting changed"),
    (ScalesTheTest, "data", "scoring changed"),
    (LearnsInTheMethod, "fits", "fitted to other queries"),
    (HidesItsUse, "groups", "needs_group=True"),
    (SaysItForNothing, "groups", "Leave needs_group out"),
    (DrawsAnywhere, "seed", "same seed"),
    (NeedsEveryGroup, "missing groups", "ValueError: an item has no group"),
    (IndexesTheMissing, "missing groups", "IndexError"),
    (NeedsThree, "two groups", "IndexError"),
    (CannotBeStopped, "interruption", "Do not catch KeyboardInterrupt"),
]


@pytest.mark.parametrize("kind", [Plain, Shifts, Draws])
def test_sound_methods_pass(kind):
    check_method(kind().method())


@pytest.mark.parametrize(("kind", "name", "facts"), BROKEN)
def test_a_fault_is_found(kind, name, facts):
    with pytest.raises(ContractError, match=facts) as caught:
        METHOD_CHECKS[name](kind().method())
    assert caught.value.properties == (name,)


def test_every_property_has_a_broken_method():
    assert {name for _, name, _ in BROKEN} == set(METHOD_CHECKS)


def test_models_pass():
    check_method(LinearRanker())
    check_method(as_method(FairRanker(max_rounds=2)), skip=["interruption", "fits"])


def test_an_interrupted_fair_ranker_is_not_a_method():
    """A FairRanker keeps its best round on Ctrl-C; in a comparison that would be another point."""
    METHOD_CHECKS["interruption"](as_method(FairRanker(max_rounds=1, tolerance=0.0)))


def test_several_faults_are_listed():
    class Bad(Cheats):
        name = ""

    with pytest.raises(ContractError, match="2 of 3 properties fail") as caught:
        check_method(
            Bad().method(), skip=METHOD_CHECKS.keys() - {"description", "labels", "scores"}
        )
    assert caught.value.properties == ("description", "labels")


def test_checks_one_by_one():
    checks = dict(method_checks(Plain().method(), skip="seed"))
    assert list(checks) == [name for name in METHOD_CHECKS if name != "seed"]
    checks["labels"]()
    with pytest.raises(InputError, match=r"skip must be .*\(got 'sede'"):
        list(method_checks(Plain().method(), skip=["sede"]))
