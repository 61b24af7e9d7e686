"""PyTorch: FairRanker takes a module that scores items and returns a module."""

import torch
from torch import nn

from pairity import FairRanker, audit
from pairity.datasets import BiasedWorld, make_biased_ranking
from pairity.rankers import TorchRanker

data = make_biased_ranking(
    200, 40, separation=2.0, world=BiasedWorld(merit_gap=0.3), random_state=7
)
train, test = data.queries().split(0.3, random_state=7)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(train.X.shape[1], 16), nn.ReLU(), nn.Linear(16, 1))
ranker = TorchRanker(net, learning_rate=0.01, random_state=0)  # or the module itself
for name, max_rounds in (("plain", 0), ("reweighted", 10)):
    model = FairRanker(ranker, "inter", max_rounds=max_rounds).fit(**train)
    result = audit(test, model.predict(test.X))
    print(f"{name}: inter-group violation {result.violation['inter']:.3f}, AUC {result.auc:.3f}")

torch.save(model.ranker_.model_.state_dict(), "net.pt")  # loading it does not need pairity
