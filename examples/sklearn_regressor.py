"""scikit-learn: any regressor that takes sample_weight, through Newton boosting."""

from sklearn.ensemble import HistGradientBoostingRegressor

from pairity import FairRanker, audit
from pairity.datasets import BiasedWorld, make_biased_ranking

data = make_biased_ranking(
    200, 40, separation=2.0, world=BiasedWorld(merit_gap=0.3), random_state=7
)
train, test = data.queries().split(0.3, random_state=7)

regressor = HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=7, random_state=0)
for name, max_rounds in (("plain", 0), ("reweighted", 10)):
    model = FairRanker(regressor, "inter", max_rounds=max_rounds, validation=0.25, random_state=0)
    model.fit(**train)
    result = audit(test, model.predict(test.X))
    print(f"{name}: inter-group violation {result.violation['inter']:.3f}, AUC {result.auc:.3f}")
