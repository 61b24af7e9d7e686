"""FairRanker: the estimator's shell around Algorithm 1."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from pairity._utils.html import Html, join, tag
from pairity._utils.json_codec import require_stored
from pairity._utils.progress import Progress
from pairity._utils.typing import Array
from pairity._utils.validation import is_real
from pairity.constraints import Constraint, as_constraint
from pairity.data.parquet_features import ParquetFeatures
from pairity.data.queries import Queries, require_features, require_groups, require_preferences
from pairity.data.sources import (
    client_of,
    errors_about,
    is_dask,
    open_queries,
    queries_type,
    read_alike,
    read_without_features,
)
from pairity.exceptions import InputError, MemorisedWarning, ModelFileError, TargetNotReachedWarning
from pairity.rankers._estimators import (
    PairRanker,
    RankingEstimator,
    Stored,
    predict_in_blocks,
    read_features,
    remember_queries,
    require_same_features,
    require_spreads,
    require_streams,
)
from pairity.rankers.adapters import as_ranker
from pairity.reweighting.algorithm import Outcome, Round, Solution, Trace, interleave, retrain
from pairity.reweighting.checkpoints import Checkpoint
from pairity.reweighting.export import export_pairs
from pairity.reweighting.interleaving import as_schedule
from pairity.reweighting.manifest import describe_model, encode_settings
from pairity.reweighting.paths import Path, lambda_path, read_values, tolerance_path
from pairity.reweighting.problem import Problem
from pairity.reweighting.solvers import as_solver
from pairity.reweighting.weights import PairWeights

_BY_HEART = 0.995  # of the training pairs in the right order


class FairRanker(RankingEstimator):
    """Reweights pairs of training items to lower a stated violation between groups.

    Trains a ranker, measures how unevenly it orders the groups, moves one multiplier per pair of
    groups, weighs the training pairs by them, and trains again, until the violation is within the
    tolerance (Algorithm 1). The ranker that comes out needs no group to predict.

    Parameters
    ----------
    ranker : default=LinearRanker()
        What to train: an `LGBMRanker`, `XGBRanker`, `CatBoostRanker`, PyTorch module or
        scikit-learn regressor, configured as you like it (see `pairity.rankers.adapters`), or
        anything that follows `pairity.rankers.base.Ranker`.
    constraint : str, Constraint or callable, default="inter"
        What to even out: "statistical", "inter", "intra", "marginal", an object such as
        ``InterGroup(average="pair")``, or a function of (queries, scores); see
        `pairity.constraints`.
    tolerance : float, default=0.01
        The violation to come down to: the largest gap between two entries that are compared.
    max_rounds : int, default=50
        The most retrainings; 0 gives the plain ranker.
    solver : {"damped", "plain"} or Solver, default="damped"
        How the multipliers move: root finding, or the paper's λ ← λ - η Δ (`PlainStep`).
    enumeration : {"preference", "both"}, default="preference"
        Whether a pair is enumerated once, or in both orders as in a literal reading of the paper.
        With both orders the intra-group constraint cannot be trained.
    weighting : {"indicator", "closed-form"}, default="indicator"
        Whether λ itself is the exponent of a pair's weight, or λ scaled as in Proposition 1.
    schedule : {"auto", "retrain", "interleaved"}, default="auto"
        Whether the ranker is trained anew for every λ, or λ moves between the trees of one
        training run (`pairity.reweighting.interleaving.DualAscent`), which LightGBM and XGBoost
        allow; such a
        run is repeated from the λ it ended with as long as that helps. "auto" interleaves where
        the ranker can, unless a solver was chosen (it plays no part there) or evaluation sets
        are given (early stopping would cut off the trees that λ came to be right for).
    validation : float, Queries or mapping, optional
        Queries on which the violation is measured and driven down: a share to hold out (by
        query), or data given. By default the training queries.
    progress : {"auto"} or bool, default="auto"
        Whether to show progress, on stderr, of a fit that takes longer than two seconds. "auto"
        shows it on a terminal or in a notebook; True also in a log.
    random_state : int, RandomState instance or None
        Draws the held-out queries.
    checkpoint : str or path, optional
        A folder in which every round is kept as it ends: λ, what it led to, and the ranker. A fit
        that finds rounds of its own there, on this machine or another, goes on behind them; one
        with other data or settings refuses the folder. `max_rounds` may differ.

    Attributes
    ----------
    ranker_ : the ranker of the best round, fitted
    outcome_ : Outcome, how it ended; prints as a sentence
    pair_weights_ : PairWeights, the K × K table of the best round
    lambda_ : array, the multipliers of the best round
    violation_ : float, the violation of the best round on the queries it is measured on
    history_ : tuple of Round, every round: λ, violation, AUC, seconds
        Round 0 is the plain ranker, which an interleaved fit does not train.
    groups_ : tuple of str
    training_digest_ : str, which data it was trained on; see `Queries.digest`
    n_features_in_, feature_names_in_ : as in scikit-learn

    Notes
    -----
    Items without a group take part in training with weight 1, and are left out of the constraint.
    Ctrl-C ends the fit with the best round so far.

    Cross-validate by query, with scikit-learn's ``GroupKFold`` and ``groups=qid``: folds that cut
    queries, such as those of ``KFold``, silently drop the pairs between their parts.

    References
    ----------
    R. Sonoda, *A Pre-processing Method for Fairness in Ranking*, 2021.

    Examples
    --------
    >>> from pairity import FairRanker, LinearRanker
    >>> from pairity.datasets import make_biased_ranking
    >>> data = make_biased_ranking(100, 40, random_state=0)
    >>> model = FairRanker(LinearRanker(), constraint="inter", tolerance=0.01)
    >>> model.fit(data.X, data.y, qid=data.qid, sensitive_features=data.sensitive_features)
    FairRanker(ranker=LinearRanker())
    >>> print(model.outcome_)
    The violation came within the tolerance.
    >>> model.predict(data.X[:3]).shape
    (3,)
    """

    def __init__(
        self,
        ranker: Any = None,
        constraint: Any = "inter",
        *,
        tolerance: float = 0.01,
        max_rounds: int = 50,
        solver: Any = "damped",
        enumeration: str = "preference",
        weighting: str = "indicator",
        schedule: str = "auto",
        validation: Any = None,
        progress: Any = "auto",
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.ranker = ranker
        self.constraint = constraint
        self.tolerance = tolerance
        self.max_rounds = max_rounds
        self.solver = solver
        self.enumeration = enumeration
        self.weighting = weighting
        self.schedule = schedule
        self.validation = validation
        self.progress = progress
        self.random_state = random_state
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        query_weight: Any = None,
        **fit_params: Any,
    ) -> Self:
        """Train until the violation is within the tolerance.

        Dask collections are trained on where they are, by `LinearRanker`, `DaskLGBMRanker` and
        `DaskXGBRanker` (`pairity.data.distributed`); partitions hold whole queries.

        Parameters
        ----------
        X : table or matrix of shape (n_items, n_features), or Queries
            With `Queries`, leave out y, qid, group, sensitive_features and the weights.
        y : labels of shape (n_items,), binary, graded or real; a higher one is preferred
        qid : query ids of shape (n_items,), in any order of rows
        group : number of rows of each query, as in LightGBM, in place of qid
        sensitive_features : groups of shape (n_items,), or several columns for intersections
        sample_weight : item weights of shape (n_items,), optional
            A pair weighs the product of its items' weights.
        query_weight : one weight per query, as a column or a mapping, optional
        **fit_params
            Handed on to the ranker's engine in every round, under the engine's own names:
            ``eval_set`` with ``eval_qid``, ``callbacks``, and so on.
        """
        self._check_parameters()
        ranker = as_ranker(self.ranker)
        schedule = as_schedule(self.schedule, ranker, self.solver, fit_params)
        raw = bool(getattr(ranker, "raw_features", False))
        constraint, solver = as_constraint(self.constraint), as_solver(self.solver)
        progress = Progress(int(self.max_rounds) + 1, "Reweighting", self.progress)
        columns = {
            "X": X, "y": y, "qid": qid, "group": group, "sensitive_features": sensitive_features,
            "sample_weight": sample_weight, "query_weight": query_weight,
        }  # fmt: skip
        spread = queries_type(columns).distributed
        if spread and self.validation is not None and self.schedule == "auto":
            schedule = "retrain"  # workers follow the scores of their own training queries alone
        _require_place(self.ranker, ranker, constraint, spread)
        client = client_of(self.ranker)
        with open_queries(
            columns, raw=raw, client=client, announce=self.progress is not False
        ) as queries:
            require_features(queries)
            require_streams(ranker, queries.X)
            remember_queries(self, queries)
            self._fit(queries, ranker, constraint, solver, schedule, progress, fit_params)
        return self

    def _fit(
        self,
        queries: Any,
        ranker: Any,
        constraint: Constraint,
        solver: Any,
        schedule: str,
        progress: Progress,
        fit_params: dict[str, Any],
    ) -> None:
        """The loop, on queries in memory or on workers."""
        raw = bool(getattr(ranker, "raw_features", False))
        require_groups(queries)
        train, measured_on = self._split(queries, raw)
        require_preferences(train)
        constraint.check(train)
        if measured_on is not None:
            with errors_about("the validation queries"):
                require_preferences(measured_on)
                constraint.check(measured_on)
        content = queries.digest()
        kept = None
        if self.checkpoint is not None:
            settings = self._what_rounds_depend_on(ranker, schedule, content, measured_on)
            kept = Checkpoint(self.checkpoint, settings, queries.n_groups, ranker)
        problem = Problem(
            train, ranker, constraint, measured_on, self.enumeration, self.weighting, fit_params
        )
        trace = Trace(
            float(self.tolerance),
            int(self.max_rounds),
            on_round=lambda ended: progress.advance(ended.number + 1, _note(ended)),
            store=kept,
        )
        with progress:
            if schedule == "interleaved" and self.max_rounds:
                solution = interleave(problem, trace)
            else:
                solution = retrain(problem, solver, trace)
        self._trained_on: Any = train.training_record(queries)
        self._training = {"items": queries.n_items, "queries": queries.n_queries}
        self._feature_types = queries.feature_types
        self.training_digest_ = content
        self.ranker_ = solution.model
        self.outcome_ = solution.outcome
        self.pair_weights_ = PairWeights(solution.table, queries.groups)
        self.lambda_ = solution.best.lambda_
        self.violation_ = solution.best.violation
        self.history_ = solution.rounds
        self.groups_ = queries.groups
        self._warn(solution, constraint, train if measured_on is None else measured_on)
        if measured_on is None and self.max_rounds and solution.best.auc >= _BY_HEART:
            _warn_memorised(solution.best)

    def _what_rounds_depend_on(
        self, ranker: Any, schedule: str, content: str, measured_on: Any
    ) -> dict[str, Any]:
        """As JSON, for a checkpoint."""
        same = ("ranker", "checkpoint", "max_rounds", "progress", "validation")
        measured = None
        if measured_on is not None:
            measured = measured_on.digest()
        return {
            "data": content,
            "ranker": [type(ranker).__name__, ranker._encode_settings()],
            **encode_settings(self, same),
            "schedule": schedule,
            "validation": measured,
        }

    def predict(self, X: Any) -> Array:
        """Scores of shape (n_items,), in the order of the rows; no group is needed.

        Of a Dask collection they are a lazy Dask array, computed partition by partition.
        """
        check_is_fitted(self, "ranker_")
        if is_dask(X):
            from pairity.data.distributed.collections import lazy_scores

            if hasattr(X, "queries_on_workers"):  # features without their names
                return lazy_scores(self.ranker_, X)  # type: ignore[no-any-return]
            light = copy.copy(self)
            light.ranker = light.validation = light._trained_on = None  # to travel
            return lazy_scores(light, X)  # type: ignore[no-any-return]
        raw = bool(getattr(self.ranker_, "raw_features", False))
        features = read_features(self, X, raw=raw)
        if isinstance(features, ParquetFeatures) and not isinstance(self.ranker_, PairRanker):
            return predict_in_blocks(self.ranker_.predict, features, raw=raw)
        return np.asarray(self.ranker_.predict(features), dtype=np.float64)

    def path(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        query_weight: Any = None,
        along: str = "lambda",
        values: Any = None,
        test: Any = None,
        keep_models: bool = False,
        **fit_params: Any,
    ) -> Path:
        """Utility and violation between the plain ranker and this one, and beyond.

        Each point is one training, begun at its neighbour's. A model that is not fitted is
        fitted first; one that is stays as it is.

        Parameters
        ----------
        X, y, qid, group, sensitive_features, sample_weight, query_weight, **fit_params
            What `fit` was given.
        along : {"lambda", "tolerance"}, default="lambda"
            "lambda": with the weights of x · λ*, λ* being `lambda_`. "tolerance": for each
            tolerance, with the smallest share of λ* found that comes within it.
        values : numbers, optional
            The x, by default nine from 0 to 2; or the tolerances, by default six from the plain
            ranker's violation down to the model's `tolerance`.
        test : Queries or mapping, optional
            Queries to report on, as for `validation`; Dask collections where the others are. By
            default those that the violation is measured on.
        keep_models : bool, default=False
            Whether every point keeps its fitted ranker.

        Returns
        -------
        Path
            Prints as a table; `Path.to_frame`, `Path.plot`.

        Notes
        -----
        A tolerance below the model's own violation takes one more run of Algorithm 1. Every point
        is trained with weights that stand still. Where λ moved inside one training run, which is
        what "interleaved" and, for boosters, "auto" do, the point x = 1 is therefore near this
        model but not the same, and a path along tolerances finds its own λ*.

        Examples
        --------
        >>> from pairity import FairRanker
        >>> from pairity.datasets import make_biased_ranking
        >>> train = make_biased_ranking(50, 40, random_state=0).queries()
        >>> path = FairRanker().path(**train, values=[0, 1, 2])
        >>> [bool(path[1].violation < other.violation) for other in (path[0], path[2])]
        [True, True]
        """
        if along not in ("lambda", "tolerance"):
            raise InputError(f"along is {along!r}; choose 'lambda' or 'tolerance'.")
        if values is not None:
            values = read_values(values, along)
        data = {
            "X": X, "y": y, "qid": qid, "group": group, "sensitive_features": sensitive_features,
            "sample_weight": sample_weight, "query_weight": query_weight,
        }  # fmt: skip
        if not hasattr(self, "ranker_"):
            self.fit(**data, **fit_params)
        self._check_parameters()
        ranker, constraint = as_ranker(self.ranker), as_constraint(self.constraint)
        raw = bool(getattr(ranker, "raw_features", False))
        _require_place(self.ranker, ranker, constraint, queries_type(data).distributed)
        with open_queries(
            data, raw=raw, client=client_of(self.ranker), announce=self.progress is not False,
            groups=self.groups_,
        ) as queries:  # fmt: skip
            require_features(queries)
            require_same_features(self, queries.feature_names, queries.n_features)
            return self._path(
                queries, ranker, constraint, along, values, test, keep_models, fit_params
            )

    def _path(
        self,
        queries: Any,
        ranker: Any,
        constraint: Constraint,
        along: str,
        values: list[float] | None,
        test: Any,
        keep_models: bool,
        fit_params: dict[str, Any],
    ) -> Path:
        """The path, on queries in memory or on workers."""
        raw = bool(getattr(ranker, "raw_features", False))
        train, measured_on = self._split_again(queries, raw)
        require_preferences(train)
        report: Any = None
        if test is not None:
            with errors_about("test"):
                report = read_alike(test, queries, raw=raw)
                require_preferences(report)
                constraint.check(report)
        problem = Problem(
            train, ranker, constraint, measured_on, self.enumeration, self.weighting, fit_params
        )
        options: dict[str, Any] = {
            "test": report, "keep_models": keep_models, "previous": self.ranker_
        }  # fmt: skip
        if along == "lambda":
            shares = np.linspace(0, 2, 9) if values is None else values
            return lambda_path(problem, self.lambda_, shares, **options)
        lambda_ = self.lambda_
        smallest = float(self.tolerance if values is None else min(values))
        further = self.violation_ > smallest and self.outcome_ is not Outcome.UNREACHABLE
        if further or as_schedule(self.schedule, ranker, self.solver, fit_params) == "interleaved":
            trace = Trace(smallest, int(self.max_rounds))
            solution = retrain(problem, as_solver(self.solver), trace)
            lambda_, options["previous"] = solution.best.lambda_, solution.model
        return tolerance_path(problem, lambda_, values, smallest=smallest, **options)

    def export_pairs(
        self,
        path: str | os.PathLike[str],
        data: Mapping[str, Any] | None = None,
        *,
        format: str | None = None,  # noqa: A002 - what everybody calls it
        block: int = 1_000_000,
    ) -> None:
        """Write the training pairs with their learnt weights, for any other tool to train on.

        Parameters
        ----------
        path : str or path
            A file ending in ``.parquet``, or in ``.pairs`` or ``.tsv`` for CatBoost's own format;
            written whole or not at all.
        data : Queries or mapping with y, qid and sensitive_features, optional
            Other queries whose pairs to write; by default those that `fit` trained on, with the
            row numbers of the table it was given.
        format, block
            As in `pairity.reweighting.export.export_pairs`, which says what is written.

        Notes
        -----
        For this, a fitted model keeps the labels, query ids, groups and weights of its training
        items (about 20 bytes each), also where it is pickled, but not their features.
        """
        check_is_fitted(self, "ranker_")
        if data is None:
            if self._trained_on is None:
                raise InputError(
                    "This model was loaded from files, which do not hold its training data. Give "
                    "export_pairs the data that fit was given."
                )
            queries, rows = self._trained_on
        else:
            queries, rows = read_without_features(data), None
        export_pairs(queries, self.pair_weights_, path, format=format, rows=rows, block=block)

    # --- in notebooks ----------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        """scikit-learn's diagram; below it, once fitted, how that ended and what was learnt."""
        diagram = str(estimator_html_repr(self))
        if not hasattr(self, "ranker_"):
            return diagram
        ended = f"{self.outcome_} Violation {self.violation_:.4f}, tolerance {self.tolerance:g}."
        return join((Html(diagram), tag("p", ended), Html(self.pair_weights_._repr_html_())))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    # --- saved and loaded ------------------------------------------------------------------------

    def to_files(self) -> Stored:
        """What the model is saved as; see `save`."""
        check_is_fitted(self, "ranker_")
        if type(self) is not FairRanker or not hasattr(self.ranker_, "to_files"):
            unknown = self if type(self) is not FairRanker else self.ranker_
            raise ModelFileError(
                f"{type(unknown).__name__} is no ranker that pairity knows how to save. Save "
                "ranker_ by yourself, and the weights with pair_weights_.to_json()."
            )
        inner = self.ranker_.to_files()
        content = {"model": describe_model(self), **inner.content}
        return Stored(content, inner.files, inner.libraries)

    def _check_parameters(self) -> None:
        require_stored(self)
        tolerance: Any = self.tolerance
        if not is_real(tolerance) or not 0.0 <= tolerance < np.inf:
            raise InputError(f"tolerance is {tolerance!r}; give a number from 0 up, such as 0.01.")
        max_rounds: Any = self.max_rounds
        if not is_real(max_rounds) or not isinstance(max_rounds, Integral) or max_rounds < 0:
            raise InputError(f"max_rounds is {max_rounds!r}; give a whole number, 0 or more.")
        try:
            check_random_state(self.random_state)
        except ValueError as error:
            raise InputError(
                f"random_state is {self.random_state!r}; give a whole number, a NumPy RandomState "
                "or None."
            ) from error

    def _split(self, queries: Any, raw: bool) -> tuple[Any, Any]:
        """The queries to train on, and those to measure on where they are others."""
        given = self.validation
        if given is None:
            return queries, None
        if is_real(given):
            parts: tuple[Any, Any] = queries.split(float(given), self.random_state)
            queries.release()  # workers need not hold the rows twice
            return parts
        with errors_about("validation"):
            return queries, read_alike(given, queries, raw=raw)

    def _split_again(self, queries: Any, raw: bool) -> tuple[Any, Any]:
        """As `_split`, with the queries held out that `fit` held out."""
        if not is_real(self.validation):
            return self._split(queries, raw)
        trained_on = None if self._trained_on is None else self._trained_on[0]
        parts: tuple[Any, Any] = queries.split_again(
            float(self.validation), self.random_state, trained_on
        )
        queries.release()
        return parts

    def _warn(self, solution: Solution, constraint: Constraint, measured: Queries) -> None:
        if solution.outcome in (Outcome.WITHIN_TOLERANCE, Outcome.NO_ROUNDS):
            return
        first, best, last = solution.rounds[0], solution.best, solution.rounds[-1]
        plain = f"{first.violation:.5g} for the plain ranker, " if first.number == 0 else ""
        warnings.warn(
            f"{solution.outcome} Violation of {constraint!r} on {measured.n_queries} queries: "
            f"{plain}{best.violation:.5g} in round {best.number} of {last.number}, against a "
            f"tolerance of {self.tolerance:g}."
            f"{_at_their_limits(self.pair_weights_)}",
            TargetNotReachedWarning,
            stacklevel=4,
        )


def _require_place(given: Any, ranker: Any, constraint: Constraint, spread: bool) -> None:
    """Refuse what cannot be trained on workers, or only there."""
    if not spread:
        if type(given).__name__.startswith("Dask"):
            raise InputError(
                f"{type(given).__name__} trains on Dask collections, and these are none. Give "
                f"Dask's, or {type(ranker.estimator).__name__} with the same parameters."
            )
        return
    require_spreads(ranker)
    if not hasattr(constraint, "totals"):
        raise InputError(
            f"The constraint {constraint!r} is a function of all queries at once, which Dask keeps "
            "apart. Use one of the catalogue, or a class that has totals(queries, scores), which "
            "add up over partitions, and from_totals(totals, groups)."
        )


def _warn_memorised(best: Round) -> None:
    warnings.warn(
        f"The ranker puts {best.auc:.1%} of the training pairs in the right order: it knows them "
        f"by heart, so that its violation there ({best.violation:.4f}) says little about other "
        "queries. Measure on queries it has not seen, with validation=0.2, or use a ranker that "
        "fits less closely.",
        MemorisedWarning,
        stacklevel=4,
    )


def _at_their_limits(weights: PairWeights) -> str:
    """A sentence on the cells whose weights can move no further."""
    cells = weights.saturated()
    if not cells:
        return ""
    named = [f"{a!r} preferred to {b!r} ({weights[a, b]:.2f})" for a, b in cells[:3]]
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return f" Weights at their limits, 0 and 2: {', '.join(named)}{more}."


def _note(ended: Round) -> str:
    return f"violation {ended.violation:.4f}, AUC {ended.auc:.4f}"
