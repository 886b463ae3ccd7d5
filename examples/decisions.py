"""From uncertainty to decisions: sets, referral, and a drift that is noticed.

    python examples/decisions.py [--smoke]

A network learns to tell malignant from benign tumours (scikit-learn's breast
cancer data). It then answers with a set of diagnoses that holds the truth nine
times in ten, for each class. Patients whose set does not hold exactly one
diagnosis go to a doctor. At last, a device measures too much. The script shows
which numbers notice.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from scipy import stats
from sklearn import datasets
from sklearn import preprocessing

import keras_bdl as bdl

epochs = 5 if "--smoke" in sys.argv else 40
keras.utils.set_random_seed(0)
data = datasets.load_breast_cancer()
names = [str(name) for name in data.target_names]
order = np.random.default_rng(0).permutation(len(data.data))
train, held_out, test = np.split(order, [200, 370])
scaler = preprocessing.StandardScaler().fit(data.data[train])


def patients(rows, drift=1.0):
    """Returns inputs and labels; `drift` multiplies the mean radius."""
    x = data.data[rows] * np.where(
        data.feature_names == "mean radius", drift, 1
    )
    return scaler.transform(x).astype("float32"), data.target[rows]


x, y = patients(train)
dense = keras.layers.Dense
model = bdl.Sequential([keras.Input((30,)), dense(32, "relu"), dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
model.fit(x, y, epochs=epochs, batch_size=16, verbose=0)
posterior = bdl.fit_laplace(model, (x, y), verbose=0)


def predicted(x):
    return bdl.predict(model, x, posterior, samples=100, verbose=0)


x_held_out, y_held_out = patients(held_out)
x_test, y_test = patients(test)
on_held_out, on_test = predicted(x_held_out), predicted(x_test)
print(bdl.evaluate(on_test, y_test, uncertainty="entropy"))

sets = bdl.conformal.LAC(per_class=True)
sets.fit(on_held_out, y_held_out, coverage=0.9)
answers = sets(on_test)
print(f"\n{answers.evaluate(y_test)}\n")
for label, name in enumerate(names):
    inside = answers.contains(y_test)[y_test == label]
    print(f"{name:<10} in its set for {inside.mean():.1%} of {len(inside)}")
sure = answers.sizes == 1
right = (on_test.predicted_classes == y_test)[sure]
print(f"one diagnosis: {sure.sum()} patients, right for {right.mean():.1%}")
print(f"to a doctor: {(~sure).sum()} patients")

density = bdl.evaluation.FeatureDensity(model).fit(x, y)
usual = density.score(x_held_out)
print("\nmean radius   accuracy  coverage  entropy   distance   p of a drift")
for drift in (1.0, 1.1, 1.25, 1.5):
    x_new, y_new = patients(test, drift)
    p, distance = predicted(x_new), density.score(x_new)
    accuracy = np.mean(p.predicted_classes == y_new)
    coverage = sets(p).contains(y_new).mean()
    # No label is needed for this test.
    noticed = stats.ks_2samp(usual, distance).pvalue
    print(
        f"times {drift:<8}{accuracy:8.3f}{coverage:10.3f}"
        f"{p.entropy.mean():9.3f}{distance.mean():11.1f}{noticed:15.2g}"
    )
