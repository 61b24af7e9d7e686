"""LightGBM: FairRanker takes an LGBMRanker and returns a LightGBM model."""

from lightgbm import LGBMRanker, early_stopping

from pairity import FairRanker, audit
from pairity.datasets import BiasedWorld, make_biased_ranking

data = make_biased_ranking(
    200, 40, separation=2.0, world=BiasedWorld(merit_gap=0.3), random_state=7
)
rest, test = data.queries().split(0.3, random_state=7)
train, held_out = rest.split(0.2, random_state=0)

ranker = LGBMRanker(n_estimators=200, num_leaves=7, learning_rate=0.05, random_state=0, verbose=-1)
stop = dict(
    eval_set=[(held_out.X, held_out.y)],
    eval_qid=[held_out["qid"]],
    callbacks=[early_stopping(20, verbose=False)],
)
for name, max_rounds in (("plain", 0), ("reweighted", 20)):
    model = FairRanker(ranker, "inter", max_rounds=max_rounds, validation=held_out)
    model.fit(**train, **stop)
    result = audit(test, model.predict(test.X))
    print(f"{name}: inter-group violation {result.violation['inter']:.3f}, AUC {result.auc:.3f}")

model.ranker_.model_.save_model("model.txt")  # LightGBM's own file, readable without pairity
