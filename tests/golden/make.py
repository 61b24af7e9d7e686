"""Write the golden models of the current format version: ``python tests/golden/make.py``.

A version's folder must never be written again, because users have models of that version.
"""

import json
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from pairity._utils.model_folder import VERSION  # noqa: E402
from support.model_catalogue import (  # noqa: E402
    ENGINES,
    labels_of,
    make_model,
    make_new_items,
    make_ranking,
)


def main():
    folder = HERE / f"v{VERSION}"
    folder.mkdir()
    ranking = make_ranking()
    X = make_new_items()[:12].round(3)
    expected = {"X": X.tolist(), "scores": {}}
    for engine in ENGINES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make_model(engine).fit(ranking.X, **labels_of(ranking))
        model.save(folder / engine)
        expected["scores"][engine] = model.predict(X).tolist()
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
