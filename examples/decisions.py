"""From uncertainty to decisions: sets, referral, and a drift that is noticed.

    python examples/decisions.py [--smoke]

A network learns to tell malignant tumours, class 0, from benign ones, class 1
(scikit-learn's breast cancer data). It answers with sets of diagnoses that hold
the truth nine times in ten, for each class. Patients without a set of exactly
one diagnosis go to a doctor. Then a device measures too much: who notices?
"""

import sys

import keras
import numpy as np
from scipy import stats
from sklearn import datasets
from sklearn import preprocessing

import keras_bdl as bdl

HEAD = "mean radius  accuracy  coverage  entropy  distance  p of a drift"
keras.utils.set_random_seed(0)
data = datasets.load_breast_cancer()
order = np.random.default_rng(0).permutation(len(data.data))
train, held_out, test = np.split(order, [200, 370])
scaler = preprocessing.StandardScaler().fit(data.data[train])


def patients(rows, drift=1.0):
    """Returns inputs and labels; `drift` multiplies the mean radius."""
    factor = np.where(data.feature_names == "mean radius", drift, 1)
    x = scaler.transform(data.data[rows] * factor)
    return x.astype("float32"), data.target[rows]


(x, y), (x_held_out, y_held_out) = patients(train), patients(held_out)
dense = keras.layers.Dense
model = bdl.Sequential([keras.Input((30,)), dense(32, "relu"), dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
epochs = 5 if "--smoke" in sys.argv else 40
model.fit(x, y, batch_size=16, epochs=epochs, verbose=0)
posterior = bdl.fit_laplace(model, (x, y), verbose=0)
options = {"posterior": posterior, "samples": 100, "verbose": 0}
sets = bdl.conformal.LAC(per_class=True)
sets.fit(bdl.predict(model, x_held_out, **options), y_held_out)
density = bdl.evaluation.FeatureDensity(model).fit(x, y)
usual = density.score(x_held_out)
for drift in (1.0, 1.1, 1.25, 1.5):
    x, y = patients(test, drift)
    p = bdl.predict(model, x, **options)
    report, answers = bdl.evaluate(p, y, uncertainty="entropy"), sets(p)
    if drift == 1.0:
        print(report, answers.evaluate(y), sep="\n\n")
        sure, right = answers.sizes == 1, p.predicted_classes == y
        print(f"\none diagnosis: {sum(sure)}, right {right[sure].mean():.1%}")
        print(f"to a doctor: {sum(~sure)}\n\n{HEAD}")
    distance, inside = density.score(x), answers.contains(y).mean()
    noticed = stats.ks_2samp(usual, distance).pvalue  # needs no label
    print(f"times {drift:<7}{report.accuracy:8.3f}{inside:10.3f}", end="")
    print(f"{report.entropy:9.3f}{distance.mean():10.1f}{noticed:14.2g}")
