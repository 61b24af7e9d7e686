"""What notebooks show: the tables that print, as HTML in which every name is text."""

import re

import sklearn

from pairity import FairRanker, LinearRanker, audit, sweep
from pairity._utils.text import short_names
from support.report_cases import HOSTILE, trained


def visible(html):
    import html as escapes

    return escapes.unescape(re.sub(r"<[^>]*>", " ", html))


def elements(html):
    return set(re.findall(r"<([a-z]+)", html))


def test_an_audit():
    _, test, plain, _ = trained(HOSTILE)
    result = audit(test, plain.predict(test.X), name="<b>plain</b>", n_resamples=20)
    shown = result._repr_html_()
    assert elements(shown) <= {
        "style",
        "div",
        "p",
        "bdi",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert len(shown) < 40_000
    for name in (*short_names(result.groups), "<b>plain</b>", f"{result.auc:.3f}"):
        assert name in visible(shown)
    words = re.sub(r"-{5,}", " ", str(result)).split()
    assert set(words) <= set(visible(shown).split())


def test_pair_weights_and_a_fitted_ranker():
    _, _, _, fair = trained(HOSTILE)
    table = fair.pair_weights_._repr_html_()
    assert "script" not in elements(table)
    assert "<script>alert(1)</s…" in visible(table)
    assert f"{fair.pair_weights_.table[0, 1]:.3f}" in table
    shown = fair._repr_html_()
    assert table in shown
    assert str(fair.outcome_) in visible(shown)
    assert "sk-top-container" in shown
    assert fair._repr_mimebundle_()["text/html"].count(table) == 1
    plain = FairRanker(LinearRanker())
    assert "sk-top-container" in plain._repr_html_()
    assert "preferred" not in visible(plain._repr_html_())
    with sklearn.config_context(display="text"):
        assert not hasattr(fair, "_repr_html_")
        assert set(fair._repr_mimebundle_()) == {"text/plain"}


def test_a_frontier():
    train, test, _, _ = trained()
    curve = sweep({"<i>plain</i>": LinearRanker()}, train, test, n_resamples=0, progress=False)
    shown = curve._repr_html_()
    assert "i" not in elements(shown)
    assert "<i>plain</i>" in visible(shown)
    assert f"{curve.points[0].test['auc'].value:.3f}" in shown
