"""CatBoost: train on weighted pairs with the adapter, or from a file without pairity."""

import pandas as pd
from catboost import CatBoostRanker, Pool

from pairity import FairRanker, audit
from pairity.datasets import BiasedWorld, make_biased_ranking

data = make_biased_ranking(
    200, 40, separation=2.0, world=BiasedWorld(merit_gap=0.3), random_state=7
)
train, test = data.queries().split(0.3, random_state=7)

ranker = CatBoostRanker(loss_function="PairLogit", iterations=60, depth=3, random_seed=0)
for name, max_rounds in (("plain", 0), ("reweighted", 20)):
    model = FairRanker(ranker, "inter", max_rounds=max_rounds).fit(**train)
    result = audit(test, model.predict(test.X))
    print(f"{name}: inter-group violation {result.violation['inter']:.3f}, AUC {result.auc:.3f}")

model.export_pairs("pairs.parquet")  # the weighted pairs; the rest does not need pairity
pairs = pd.read_parquet("pairs.parquet")
pool = Pool(
    train.X, train.y, group_id=train.query, pairs=pairs[["winner", "loser"]].to_numpy(),
    pairs_weight=pairs["weight"],
)  # fmt: skip
again = ranker.copy().set_params(verbose=False, allow_writing_files=False).fit(pool)
difference = abs(again.predict(test.X) - model.predict(test.X)).max()
print(f"trained from the file: largest difference {difference:.0e}")
