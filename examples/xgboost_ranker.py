"""XGBoost: lambda changes between the trees of a single training run."""

from xgboost import XGBRanker

from pairity import FairRanker, audit
from pairity.datasets import BiasedWorld, make_biased_ranking

data = make_biased_ranking(
    200, 40, separation=2.0, world=BiasedWorld(merit_gap=0.3), random_state=7
)
train, test = data.queries().split(0.3, random_state=7)

ranker = XGBRanker(n_estimators=100, max_depth=3, learning_rate=0.1, tree_method="hist")
for name, max_rounds in (("plain", 0), ("reweighted", 3)):
    model = FairRanker(ranker, "inter", tolerance=0.02, max_rounds=max_rounds, random_state=0)
    model.fit(**train)
    result = audit(test, model.predict(test.X))
    print(f"{name}: inter-group violation {result.violation['inter']:.3f}, AUC {result.auc:.3f}")

model.ranker_.model_.save_model("model.ubj")  # XGBoost's own file, readable without pairity
