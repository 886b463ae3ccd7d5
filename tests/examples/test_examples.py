import importlib
import json
import math
import re
import runpy

import keras
import numpy as np
import pytest
import scipy
import tensorflow as tf

import keras_bdl
from tests.examples.conftest import EXAMPLES
from tests.helpers import assert_moment
from tests.processes import Command

pytestmark = pytest.mark.filterwarnings("default")


def start(script, *args):
    """Runs a script in a process of its own."""
    process = Command(EXAMPLES / script, "--smoke", *args)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    return printed


# Tests of whole scripts have a smaller network.
FULL_SIZE = {
    "sampling.py": lambda names: names["Run"](False).network(),
    "taylor_vi.py": lambda names: names["Run"](False).network(),
    "benchmarks/sampler_step.py": lambda names: names["sgd"]("ResNet++-20")[0],
}


@pytest.mark.parametrize("script", FULL_SIZE)
def test_network_of_a_full_run_can_be_built(script, monkeypatch):
    path = EXAMPLES / script
    monkeypatch.syspath_prepend(path.parent)
    model = FULL_SIZE[script](runpy.run_path(str(path)))
    convolutions = [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Conv2D)
    ]
    assert model.built and len(convolutions) >= 7


def test_quickstart_prints_a_report():
    printed = start("quickstart.py")
    assert "accuracy" in printed and "digits 5-9" in printed
    assert "first image of an unknown digit" in printed


def test_evaluation_of_many_rows_prints_time_and_memory(run):
    assert "evaluate: " in run("benchmarks/evaluation.py")


def test_sizes_of_conformal_sets_are_printed(run):
    assert "APS per class" in run("benchmarks/conformal_size.py")


def test_overhead_prints_its_ratios():
    # The peak memory of the process of all tests is more than this one adds.
    assert start("benchmarks/overhead.py").count(" / ") == 5


def test_small_data_prints_a_table_with_classes_and_numbers(run, tmp_path):
    printed = run(
        "small_data.py",
        *("--data", "wine", "diabetes", "--splits", "2", "--out", tmp_path),
        *("--methods", "IVON", "temperature scaling"),
    )
    table = (tmp_path / "table.txt").read_text()
    assert table in printed and max(map(len, table.splitlines())) <= 80
    found = json.loads((tmp_path / "nll.json").read_text())
    assert [len(runs) for runs in found.values()] == [2, 2]
    methods = [list(runs[0]) for runs in found.values()]
    assert methods == [["SGD", "temperature scaling", "IVON"], ["SGD", "IVON"]]


def test_small_data_marks_what_is_worse_than_sgd_in_every_split(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    table = runpy.run_path(str(EXAMPLES / "small_data.py"))["table"]
    plain = [0.1, 0.5, 0.9]
    above = {"VOGN": [0.02, 0.03, 0.04], "IVON": [0.9, -0.5, -0.1]}
    runs = [
        {"SGD": nll, **{m: nll + above[m][i] for m in above}}
        for i, nll in enumerate(plain)
    ]
    rows = {line.split()[0]: line for line in table({"wine": runs}).split("\n")}
    # The spread of 0.1, 0.5 and 0.9 is 0.4, and the error of their mean 0.231.
    assert rows["SGD"].split()[1] == "0.500(0.231)"
    assert rows["VOGN"].split()[1] == "0.530(0.237)*"
    assert "*" not in rows["IVON"]


def test_exact_posterior_prints_a_row_for_each_sampler(run, tmp_path):
    printed = run(
        "exact_posterior.py",
        *("--data", "wine", "--splits", "1", "--out", tmp_path),
    )
    table = (tmp_path / "table.txt").read_text()
    assert table in printed and max(map(len, table.splitlines())) <= 80
    found = json.loads((tmp_path / "numbers.json").read_text())
    (rows,) = found["wine, gain 8"]
    methods = ["HMC", "HMC, 15 samples", "ATMC", "SGNHT", "SGHMC"]
    assert list(rows) == [*methods, "R-hat of HMC"]
    (exact,), *others, (r_hat,) = rows.values()
    assert exact > 0.0 and r_hat > 1.0
    assert np.shape(others) == (4, 3) and np.all(np.array(others) > 0.0)


@pytest.fixture
def posterior_and_training(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    small_data = importlib.import_module("small_data")
    names = runpy.run_path(str(EXAMPLES / "exact_posterior.py"))
    task = small_data.task("wine", 0)
    training = small_data.DenseTraining(task, small_data.SMOKE, 0)
    prior = keras_bdl.priors.HeNormal(8.0)
    return names["Posterior"](training, prior), training


def test_exact_posterior_has_the_log_density_of_the_network(
    posterior_and_training,
):
    posterior, training = posterior_and_training
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, sum(posterior.sizes))).astype("float32")
    model, (x, y) = training.start(), training.task.train
    expected = []
    for row in z:
        log_density = 0.0
        for variable in model.trainable_variables:
            part, row = np.split(row, [math.prod(variable.shape)])
            kernel = len(variable.shape) == 2
            stddev = math.sqrt(8.0 / variable.shape[0]) if kernel else 1.0
            value = stddev * part.reshape(variable.shape)
            variable.assign(value)
            log_density += scipy.stats.norm.logpdf(value, scale=stddev).sum()
        log_p = scipy.special.log_softmax(model.predict(x, verbose=0), 1)
        expected.append(log_density + log_p[np.arange(len(y)), y].sum())
    # The constant of the density of the prior does not matter.
    found = posterior.log_prob(tf.constant(z)).numpy()
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-5)


def test_exact_posterior_samples_a_gaussian_with_its_mean_and_variance(
    posterior_and_training,
):
    posterior, _ = posterior_and_training
    posterior.log_prob = lambda z: -tf.reduce_sum(tf.square(z - 1.0), 1) / 0.5
    z = posterior.sample(steps=300, leapfrogs=10).numpy()
    for moment, value in ((1, 0.0), (2, 0.25)):
        # Chains and weights are independent of one another, samples are not.
        means = ((z - 1.0) ** moment).mean(0)
        stderr = means.std(ddof=1) / np.sqrt(means.size)
        assert_moment(means.mean(), value, stderr)


def test_sampling_prints_its_tables_and_writes_the_pictures(run, tmp_path):
    printed = run("sampling.py", "--seeds", "2", "--out", tmp_path)
    assert "kinetic T" in printed and "R-hat" in printed
    table = (tmp_path / "table.txt").read_text()
    assert table in printed
    for name in ("SGD", "ATMC, one sample", "SGNHT, posterior predictive"):
        assert name in table
    pictures = {p.stem for p in tmp_path.glob("*.png")}
    assert pictures == {"calibration", "trace"}


def test_sampler_step_prints_a_ratio_for_each_sampler(run):
    printed = run("benchmarks/sampler_step.py")
    for sampler in ("ATMC", "SGNHT", "SGHMC", "SGLD"):
        assert re.search(rf"MLP, {sampler} / SGD +\d", printed)


def test_step_size_bias_prints_its_table_and_draws_it(run, tmp_path):
    picture = tmp_path / "bias.png"
    printed = run("benchmarks/step_size_bias.py", "--out", picture)
    assert "Gaussian, noise 0" in printed and "hyperbolic, noise 5" in printed
    assert picture.exists()


def test_continual_learning_prints_its_table_and_draws_the_tasks(run, tmp_path):
    printed = run(
        "continual_learning.py",
        *("--seeds", "1", "--heads", "multi", "--out", tmp_path),
    )
    folder = tmp_path / "digits"
    assert (folder / "table.txt").read_text() in printed
    accuracies = json.loads((folder / "accuracies.json").read_text())["multi"]
    kinds = ["mean-field", "Radial", "Radial, exact", "Radial as printed"]
    assert list(accuracies) == ["fine-tuned", *kinds]
    assert [len(row) for row in accuracies["Radial"][0]] == [1, 2]
    assert (folder / "multi_head.png").exists()


def test_regression_prints_its_tables_and_writes_the_pictures(run, tmp_path):
    printed = run("regression.py", "--out", tmp_path)
    assert (tmp_path / "tables.txt").read_text() in printed
    reports = json.loads((tmp_path / "reports.json").read_text())
    gap = reports["one input"]["in the gap"]
    assert {"mean-field", "ensemble of Radial", "SWAG", "SGHMC"} < set(gap)
    assert len(reports["diabetes"]["constant"]["mean-field"]) == 2
    assert all(method in printed for method in gap)
    pictures = {p.stem for p in tmp_path.glob("*.png")}
    assert pictures == {"bands", "scores"}


def test_radial_robustness_prints_its_tables_and_draws_them(run, tmp_path):
    printed = run("radial_robustness.py", "--out", tmp_path)
    table = (tmp_path / "table.txt").read_text()
    assert table in printed and "% of the runs with an accuracy" in table
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == {"scale", "training", "robustness"}
    for of_task in results["scale"].values():
        assert set(of_task) == {"mean-field", "Radial"}
    pictures = {p.stem for p in tmp_path.glob("*.png")}
    assert pictures == {"scale", "training", "robustness"}


def test_growth_of_classes_prints_passes_and_their_exponent():
    printed = start("benchmarks/growth_classes.py")
    assert len(re.findall(r"^ +\d+( +\d+\.\d+){4} +\d+$", printed, re.M)) == 2
    assert re.search(r"^exponent -?\d", printed, re.M)


def test_growth_prints_time_and_memory_of_each_size():
    printed = start("benchmarks/growth.py", "predict, samples")
    line = r"^ +\d( +\d+\.\d\d){2}( +-?\d+){2}$"
    assert len(re.findall(line, printed, re.M)) == 2
    assert re.search(r"^exponent +-?\d", printed, re.M)


def test_prediction_benchmark_prints_a_line_for_each_posterior(run):
    printed = run("benchmarks/prediction.py")
    for name in ("Gaussian", "last layer", "linearised", "MC dropout"):
        assert re.search(rf"^{name} +1 ", printed, re.M)


def test_serving_answers_in_a_process_without_keras_bdl(run, tmp_path):
    printed = run("serving.py", "--out", tmp_path)
    assert "last answer: digit" in printed and "99 % within" in printed


def test_layers_benchmark_prints_a_ratio_for_each_estimator(run):
    printed = run("benchmarks/layers.py", "--framework", "ours")
    for estimator in ("weight", "local", "flipout"):
        assert printed.count(f" {estimator} ") >= 1


def test_taylor_vi_prints_its_tables_and_draws_the_sweep(run, tmp_path):
    printed = run("taylor_vi.py", "--seeds", "1", "--out", tmp_path)
    table = (tmp_path / "table.txt").read_text()
    assert table in printed
    for name in ("MAP", "TaylorVI, variance", "SampledVI, diagonal"):
        assert name in table
    assert (tmp_path / "variance.png").exists()


def test_objectives_benchmark_prints_a_ratio(run):
    printed = run("benchmarks/objectives.py")
    assert "TaylorVI, diagonal, step / plain step" in printed


def test_fine_tuning_prints_a_line_for_each_method(run, tmp_path):
    methods = ["IVON", "Laplace, adapters"]
    printed = run("fine_tuning.py", "--out", tmp_path, "--methods", *methods)
    table = (tmp_path / "table.txt").read_text()
    assert table in printed
    for method in methods:
        (line,) = (x for x in table.splitlines() if x.startswith(method))
        accuracy, nll, *_ = map(float, line.removeprefix(method).split())
        assert 0 <= accuracy <= 1 and nll > 0


def test_adapters_benchmark_prints_a_ratio(run):
    printed = run("benchmarks/adapters.py")
    assert re.search(r"^VOGN +\d+\.\d\d", printed, re.MULTILINE)


def test_pretrained_table_has_a_row_for_each_way(run):
    printed = run("benchmarks/pretrained.py")
    assert "| GPT-2 | yes |" in printed
    assert "| GPT-2, adapters | yes |" in printed


def test_decisions_prints_sets_referral_and_drift(run):
    printed = run("decisions.py")
    assert "to a doctor: " in printed
    assert len(re.findall(r"^times 1\.\d+ ", printed, re.MULTILINE)) == 4


def test_segmentation_prints_a_report_and_draws_maps(run, tmp_path):
    printed = run("segmentation.py", "--out", tmp_path)
    assert "Segmentation of 64 images into 3 classes" in printed
    assert (tmp_path / "segmentation_MC_dropout.png").exists()


def test_operations_benchmark_counts_the_matrix_products_of_both_steps(run):
    printed = run(
        "benchmarks/operations.py", "--network", "MLP", "--rows", "99"
    )
    products = re.findall(r"^\w*MatMul +(.*)", printed, re.MULTILINE)
    numbers = [list(map(float, row.split())) for row in products]
    vogn, adam = (sum(row[i] for row in numbers) for i in (1, 3))
    # Forward 3 and backward 5; VOGN squares 3 more and sums the biases.
    assert adam == 8 and vogn >= 11
