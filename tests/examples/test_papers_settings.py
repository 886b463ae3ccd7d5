"""The settings of `--scale paper`, down to the optimizer."""

import inspect
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from tests.helpers import assert_moment

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "papers"))

import compiling  # noqa: E402
import methods  # noqa: E402
import networks  # noqa: E402
import published  # noqa: E402
import recipe as recipes  # noqa: E402
import settings  # noqa: E402
import trainings  # noqa: E402
from epochs import DrawnValidation  # noqa: E402
from lookup import settings_of  # noqa: E402
from recipe import Cell  # noqa: E402


def cells(scale):
    """Yields one cell for each training and each set of option names."""
    found = {}
    for name in recipes.names(scale):
        for cell in recipes.load(name, scale).cells:
            training = methods.METHODS[cell.method].training
            options = tuple(name for name, _ in cell.options)
            key = (cell.paper, cell.data, cell.network, training, options)
            found.setdefault(key, cell)
    for cell in found.values():
        yield pytest.param(cell, id=f"{cell.paper}-{cell.where}-{cell.label}")


def of_network(**known):
    """Returns settings of a network; those of its training do not matter."""
    return settings.Settings(
        epochs=1,
        batch_size=8,
        augmented=False,
        learning_rate=0.1,
        validations=1,
        validation_samples=1,
        samples=1,
        **known,
    )


def compiled(cell, scale="paper"):
    """Returns the settings of a cell, a compiled network, and callbacks."""
    training = methods.METHODS[cell.method].training
    known = settings_of(cell, training, scale)
    trainings.check(training, known, "a cell")
    x = np.zeros((known.batch_size, 4, 4, 1), "float32")
    data = types.SimpleNamespace(
        train_size=50_000,
        steps=100,
        statistics=(x, np.zeros(len(x), "int32")),
        sets={"test": (x, np.zeros(len(x), "int32"))},
    )
    inputs = keras.Input((4, 4, 1))
    y = keras.layers.Conv2D(2, 2)(inputs)
    y = keras.layers.BatchNormalization()(y)
    y = keras.layers.Flatten()(keras.layers.Activation("softplus")(y))
    model = bdl.Model(inputs, keras.layers.Dense(2)(y))
    training = trainings.TRAININGS[training]
    if training.convert is not None:
        model = training.convert(model, known, data)
    training.compile(model, known, data)
    callbacks = training.callbacks(model, known, data, Path("a folder"))
    return known, model, callbacks


@pytest.mark.parametrize("cell", cells("paper"))
def test_every_cell_can_be_compiled_with_the_papers_settings(cell):
    known, model, _ = compiled(cell)
    assert known.epochs or known.pretrained
    assert known.samples >= 1
    assert model.compiled
    assert networks.used(cell, "paper") == cell.network


def rate(model, epoch):
    """Returns the learning rate in the middle of an epoch of 100 steps."""
    schedule = model.optimizer._learning_rate
    if not callable(schedule):
        return float(model.optimizer.learning_rate)
    return float(schedule(100 * epoch + 50))


# Tables 6 to 11 and 4 of the VOGN paper; numbers copied from there, but
# those that follow from the symbols: `1 - 0.999` as `beta_2`, `K` draws on each
# of the GPUs.
VOGN = {
    ("cifar10", "LeNet-5", False): (
        210,
        128,
        1e-2,
        100.0,
        1,
        (6, 4),
        [1e-2] * 3,
    ),
    ("cifar10", "AlexNet", True): (
        160,
        128,
        1e-4,
        0.5,
        10,
        (3, 8),
        [1e-4, 1e-5, 1e-6],
    ),
    ("cifar10", "ResNet-18", True): (
        161,
        256,
        1e-4,
        50.0,
        10,
        (5, 8),
        [1e-4, 1e-5, 1e-6],
    ),
}


@pytest.mark.parametrize("key", VOGN)
def test_vogn_has_the_numbers_of_its_tables(key):
    data, network, augmented = key
    epochs, batch_size, first, precision, factor, draws, rates = VOGN[key]
    cell = Cell("vogn", data, network, "VOGN", (("augmented", augmented),))
    known, model, _ = compiled(cell)
    optimizer = model.optimizer
    assert (known.epochs, known.batch_size) == (epochs, batch_size)
    assert optimizer.prior_precision == precision
    assert optimizer.augmentation_factor == factor
    assert optimizer.beta_1 == 0.9
    assert optimizer.beta_2 == pytest.approx(1 - 0.999)
    assert (known.train_samples, known.processes) == draws
    # One replica draws what all processes of the paper draw.
    assert model.train_samples == draws[0] * draws[1]
    assert model.sample_replicas == 1
    found = [rate(model, epoch) for epoch in (10, 100, 150)]
    assert found == pytest.approx(rates) and found[0] == pytest.approx(first)


def test_docstring_of_vogn_has_the_recipe_of_the_paper():
    code = inspect.getdoc(bdl.VOGN).split("```python\n")[2].split("```")[0]
    options = (("augmented", True),)
    cell = Cell("vogn", "cifar10", "ResNet-18", "VOGN", options)
    known, recipe, _ = compiled(cell)
    inputs = keras.Input((2,))
    model = bdl.Model(inputs, keras.layers.Dense(2)(inputs))
    names = {"keras": keras, "keras_bdl": bdl, "model": model}
    exec(code, names | {"loss": compiling.LOSS()})
    assert model.train_samples == recipe.train_samples == 40
    assert (model.samples, known.batch_size) == (recipe.samples, 256)
    own, papers = (m.optimizer.get_config() for m in (model, recipe))
    told = {"learning_rate", "name", "dataset_size", "seed", "temperature"}
    differing = {k for k in papers if own[k] != papers[k]}
    assert differing <= told, differing
    steps = -(-50_000 // known.batch_size)
    for epoch in (79, 81, 119, 121, 160):
        found = float(model.optimizer._learning_rate(steps * epoch))
        assert found == pytest.approx(rate(recipe, epoch))


@pytest.mark.parametrize(
    ("samples", "processes", "replicas", "expected"),
    [
        (1, 128, 1, (128, 1)),
        (1, 128, 8, (16, 1)),
        (6, 4, 4, (6, 1)),
        (6, 4, 3, (8, 1)),
        (6, 4, 8, (3, 2)),
        (5, 8, 16, (3, 2)),
        (2, 1, 4, (1, 4)),
    ],
)
def test_a_step_has_the_samples_of_all_processes_of_the_paper(
    samples, processes, replicas, expected
):
    known = of_network(train_samples=samples, processes=processes)
    found = compiling.samples_of_step(known, replicas)
    assert found == expected
    assert found[0] * replicas >= samples * processes
    if replicas >= processes:  # samples that an example has
        assert found[0] * found[1] >= samples


@pytest.mark.parametrize(
    ("method", "count"),
    [("VOGN", 128), ("Noisy K-FAC", 128), ("K-FAC", 1)],
)
def test_methods_without_noise_have_no_samples_of_other_processes(
    method, count
):
    options = (("augmented", True),)
    cell = Cell("vogn", "imagenet2012", "ResNet-18", method, options)
    _, model, _ = compiled(cell)
    assert model.train_samples == count


def test_samples_of_a_chain_are_files_in_the_folder_of_its_training():
    cell = Cell("atmc", "imagenet2012", "ResNet-50++", "ATMC, one sample")
    _, _, callbacks = compiled(cell)
    collector = callbacks["samples"]
    assert (collector.every, collector.start_epoch) == (20, 150)
    assert Path(collector.directory) == Path("a folder") / "samples"


def test_imagenet_warms_up_and_falls_three_times():
    cell = Cell(
        "vogn", "imagenet2012", "ResNet-18", "VOGN", (("augmented", True),)
    )
    known, model, _ = compiled(cell)
    assert (known.epochs, known.batch_size) == (90, 4096)
    schedule = model.optimizer._learning_rate
    assert float(schedule(0)) == pytest.approx(1.25e-5)
    found = [rate(model, epoch) for epoch in (20, 45, 70, 85)]
    assert found == pytest.approx([1.6e-3, 1.6e-4, 1.6e-5, 1.6e-6])
    assert model.optimizer.prior_precision == 133.3
    assert model.optimizer.augmentation_factor == 5


def test_swag_collects_from_epoch_160_and_keeps_20_columns():
    cell = Cell("swag", "cifar100", "WideResNet-28-10", "SWAG")
    known, model, callbacks = compiled(cell)
    swag = callbacks["SWAG"]
    assert (swag.start_epoch, swag.rank, swag.every) == (160, 20, 1)
    assert (known.epochs, known.samples) == (300, 30)
    assert rate(model, 10) == pytest.approx(0.1)
    assert rate(model, 250) == pytest.approx(0.05)


def test_swag_on_imagenet_collects_four_times_an_epoch():
    cell = Cell("swag", "imagenet2012", "ResNet-152", "SWAG")
    known, model, callbacks = compiled(cell)
    swag = callbacks["SWAG"]
    assert (swag.start_epoch, swag.every, swag.unit) == (0, 25, "step")
    assert known.epochs == 10 and known.pretrained
    assert known.batch_norm_fraction == 0.1
    assert rate(model, 5) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("data", "network", "first", "cycle", "batch_size"),
    [
        ("cifar10", "ResNet-56++", 1e-3, 50, 128),
        ("imagenet2012", "ResNet-50++", 5e-4, 20, 1024),
    ],
)
def test_atmc_has_the_numbers_of_section_5(
    data, network, first, cycle, batch_size
):
    cell = Cell("atmc", data, network, "ATMC, posterior predictive")
    known, model, callbacks = compiled(cell)
    assert (known.epochs, known.batch_size) == (1000, batch_size)
    schedule = model.optimizer._learning_rate
    assert float(schedule(0)) == pytest.approx(first)
    assert float(schedule(cycle * 100 - 1)) < 1e-3 * first
    assert float(schedule(cycle * 100)) == pytest.approx(first)
    optimizer = model.optimizer
    assert optimizer.average_speed == 3e-4 and optimizer.max_speed == 1e-3
    assert optimizer.friction == 0.9
    assert callbacks["samples"].start_epoch == 150


def test_l2_is_the_multiple_of_the_weights_in_the_gradient():
    cell = Cell(
        "vogn", "cifar10", "ResNet-18", "MC dropout", (("augmented", True),)
    )
    known, model, _ = compiled(cell)
    assert known.l2 == 1e-4 and known.dropout_rate == 0.1
    prior = model.objective.prior
    # The gradient of -log p(w) / N is w / (s^2 N).
    assert 1 / (prior.stddev**2 * 50_000) == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("cell", "l2", "batch_size", "excluded"),
    [
        # Section 3 of VOGN's paper, and its code: none of BatchNorm.
        (
            Cell(
                "vogn",
                "cifar10",
                "ResNet-18",
                "MC dropout",
                (("augmented", True),),
            ),
            1e-4,
            256,
            ("BatchNormalization",),
        ),
        # TensorFlow's official ResNets: of all on CIFAR-10.
        (
            Cell("atmc", "cifar10", "ResNet-56", "SGD + BatchNorm"),
            2e-4,
            128,
            (),
        ),
        (
            Cell("atmc", "imagenet2012", "ResNet-50", "SGD + BatchNorm"),
            1e-4,
            1024,
            ("BatchNormalization",),
        ),
        # PyTorch's weight decay is of all weights.
        (Cell("swag", "imagenet2012", "ResNet-152", "SWA"), 1e-4, 256, ()),
    ],
    ids=lambda value: getattr(value, "where", ""),
)
def test_l2_covers_the_weights_that_the_paper_penalises(
    cell, l2, batch_size, excluded
):
    known, model, _ = compiled(cell)
    assert model.objective.exclude_from_inference == excluded
    assert 1 / (model.objective.prior.stddev**2 * 50_000) == pytest.approx(l2)
    assert known.batch_size == batch_size
    assert model.optimizer.momentum == 0.9


def test_taylor_vi_has_the_numbers_of_section_4():
    options = (("covariance", "fixed"), ("variance", 1e-4))
    cell = Cell("taylor", "cifar10", "PreActResNet-18", "Taylor VI", options)
    known, model, _ = compiled(cell)
    assert (known.epochs, known.batch_size) == (200, 128)
    found = [rate(model, epoch) for epoch in (50, 150)]
    assert found == pytest.approx([1e-4, 1e-5])
    assert isinstance(model.objective, bdl.objectives.TaylorVI)


def test_dropout_of_vogn_is_active_in_validation():
    cell = Cell(
        "vogn", "cifar10", "LeNet-5", "MC dropout", (("augmented", False),)
    )
    _, _, callbacks = compiled(cell)
    assert callbacks["validation"].samples == 10
    inputs = keras.Input((1,))
    kernel = np.array([[20.0, 0.0]])
    dense = keras.layers.Dense(2, use_bias=False)
    model = bdl.Model(inputs, bdl.layers.MCDropout(dense, rate=0.5)(inputs))
    metric = bdl.metrics.NegativeLogLikelihood(
        from_logits=True, name="log_loss"
    )
    loss = compiling.LOSS()
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=["accuracy", metric])
    dense.set_weights([kernel])
    x, y = np.ones((2000, 1), "float32"), np.zeros(2000, "int32")
    callback = DrawnValidation((x, y), samples=2)
    logs = model.fit(
        x,
        y,
        500,
        verbose=0,
        validation_data=(x, y),
        callbacks=[callback],
    ).history
    # The input is dropped in neither draw, in one or in both.
    nll = -np.log([1, 0.75, 0.5])
    shares = np.array([0.25, 0.5, 0.25])
    error = np.sqrt((shares @ nll**2 - (shares @ nll) ** 2) / 2000)
    assert_moment(logs["val_log_loss"][0], shares @ nll, error)
    assert logs["val_accuracy"] == [1.0] and logs["val_loss"][0] < 1e-6


@pytest.mark.filterwarnings("ignore:.*has learned no variances yet")
@pytest.mark.parametrize("covariance", ["scalar", "diagonal"])
@pytest.mark.parametrize("method", ["Sampled VI", "Taylor VI"])
def test_learned_variances_start_far_below_the_prior(method, covariance):
    options = (("covariance", covariance), ("temperature", 1.0))
    cell = Cell("taylor", "cifar10", "PreActResNet-18", method, options)
    _, model, _ = compiled(cell)
    weights = model.trainable_variables
    draws = model.objective.posterior(model)
    samples = [draws.sample(seed) for seed in range(300)]
    inferred = [i for i, w in enumerate(weights) if "batch_n" not in w.path]
    found = [np.var([s[i] for s in samples], 0).mean() for i in inferred]
    # Kernel of 2 x 2 x 1 inputs, one of 18; biases have a prior of 1.
    prior = np.array([2 / 4, 1, 2 / 18, 1])
    assert [len(weights[i].shape) for i in inferred] == [4, 1, 2, 1]
    expected = np.exp(-6) * prior if method == "Sampled VI" else 1e-4
    np.testing.assert_allclose(found, expected + 0 * prior, rtol=0.3)


def test_radial_has_a_unit_prior_and_small_batches():
    cell = Cell("radial", "retinopathy", "VGG-16", "Radial BNN")
    known, model, _ = compiled(cell)
    assert (known.batch_size, known.image_size) == (16, 512)
    assert (known.filters, known.samples) == (46, 16)
    assert isinstance(model.optimizer, keras.optimizers.Adam)
    layer = model.layers[1]
    assert isinstance(layer, bdl.layers.RadialConv2D)
    assert layer.prior.stddev == 1.0


def test_radial_searches_the_same_86_settings_for_both_methods():
    found = {"MFVI": [], "Radial BNN": []}
    for cell in recipes.load("radial/figure4", "paper").cells:
        found[cell.method].append(cell.options)
    assert found["MFVI"] == found["Radial BNN"]
    assert len(set(found["MFVI"])) == 86
    searches = [
        row
        for row in published.published()["searches"]
        if (row["paper"], row["network"]) == ("radial", "small VGG")
    ]
    count = {"SGD": 0, "AMSGrad": 0}
    for options in map(dict, found["MFVI"]):
        count[options["optimizer"]] += 1
        (searched,) = (
            row
            for row in searches
            if row["optimizer"] == [options["optimizer"]]
        )
        for name in searched.keys() & options.keys():
            assert options[name] in searched[name], name
        # "up to 64x4 or 256x1"
        assert options["batch_size"] * options["train_samples"] <= 256
    assert count == {"SGD": 43, "AMSGrad": 43}
    assert {o["learning_rate_decay"] for o in map(dict, found["MFVI"])} == {
        *searches[0]["learning_rate_decay"]
    }


def test_radial_search_has_nesterov_momentum_only_with_sgd():
    for cell in recipes.load("radial/figure4", "paper").cells[::43]:
        known, model, _ = compiled(cell)
        optimizer = model.optimizer
        if known.optimizer == "SGD":
            assert (optimizer.momentum, optimizer.nesterov) == (0.9, True)
            decay = known.learning_rate_decay
            expected = known.learning_rate * decay**7
            assert rate(model, 7) == pytest.approx(expected)
        else:
            assert optimizer.amsgrad
            assert rate(model, 7) == pytest.approx(known.learning_rate)


@pytest.mark.parametrize(
    ("network", "method", "stddev"),
    [
        # rho = -6, of which the text of figure 7 says nothing else.
        ("VGG-16, 5/8 of the channels", "MFVI", 0.002476),
        ("VGG-16, 5/8 of the channels", "Radial BNN", 0.002476),
        # A variance of 1e-6, section 4.1.2.
        ("VGG-16", "MFVI with tweaks", 1e-3),
    ],
)
def test_radial_starts_with_the_scales_of_the_paper(network, method, stddev):
    _, model, _ = compiled(Cell("radial", "retinopathy", network, method))
    scale = model.layers[1].posteriors["kernel"].stddev
    np.testing.assert_allclose(scale, stddev, rtol=1e-3)


@pytest.mark.parametrize("method", ["MFVI", "Radial BNN"])
def test_figure_7_logs_the_cross_entropy_with_the_prior(method):
    network = "VGG-16, 5/8 of the channels"
    cell = Cell("radial", "retinopathy", network, method)
    _, model, callbacks = compiled(cell)
    callback, logs = callbacks["cross_entropy"], {}
    callback.set_model(model)
    for variable in model.trainable_variables:
        if variable.name.endswith("rho"):
            variable.assign(variable + 7.0)  # tiny so far
    callback.on_epoch_end(0, logs)
    expected = 0.0
    for layer in model.layers:
        for q in getattr(layer, "posteriors", {}).values():
            mean, stddev = q.mean.numpy(), q.stddev.numpy()
            # A direction of D weights, times a radius of variance 1.
            part = 1 / mean.size if method == "Radial BNN" else 1
            squares = mean**2 + part * stddev**2
            expected += np.sum(squares / 2 + np.log(2 * np.pi) / 2)
    found = logs["prior_cross_entropy"] * 50_000
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("epochs", [181, 300])
def test_shorter_runs_of_sgd_follow_the_schedule_of_the_longest(epochs):
    (cell,) = (
        cell
        for cell in recipes.load("swag/figure6", "paper").cells
        if cell.method == "SGD iterates"
        and dict(cell.options)["epochs"] == epochs
    )
    known, model, _ = compiled(cell)
    assert known.epochs == epochs
    found = [rate(model, epoch) for epoch in (149, 180, 290)]
    between = 0.1 * (1 - (180.5 / 300 - 0.5) / 0.4 * 0.99)
    assert found == pytest.approx([0.1, between, 1e-3], rel=1e-5)


def test_every_published_row_has_a_cell():
    # Of other papers, or of no cell: read by the module that shows it.
    other = {"radial/table2", "swag/figure4", "taylor/figure1"}
    foreign = ("of Leibig et al.", "of Ober and Aitchison")
    for name in set(recipes.names()) - other:
        cells = recipes.load(name, "paper").cells
        shown = [published.numbers_of(name, cell) for cell in cells]
        for row in published.published()[name].get("rows", ()):
            if not row["method"].endswith(foreign):
                assert row in shown, (name, row)


def test_swa_drop_has_every_cell_of_the_paper():
    cells = recipes.load("swag/table3", "paper").cells
    found = {
        (cell.test or cell.data, cell.network)
        for cell in cells
        if cell.method == "SWA-Drop"
    }
    networks = ("VGG-16", "WideResNet-28-10")
    expected = {
        (data, network)
        for data in ("cifar10", "cifar100", "stl10")
        for network in networks
    }
    assert found == expected | {("cifar10", "PreResNet-164")}


def test_sgd_of_swag_falls_to_a_hundredth_over_all_epochs():
    cell = Cell("swag", "cifar10", "WideResNet-28-10", "SGD")
    known, model, _ = compiled(cell)
    found = [rate(model, epoch) for epoch in (149, 210, 290)]
    part = (210.5 / 300 - 0.5) / 0.4
    between = 0.1 * (1 - part * (1 - 0.01))
    assert known.epochs == 300
    assert found == pytest.approx([0.1, between, 1e-3], rel=1e-5)


def test_sgd_of_atmc_falls_within_its_epochs():
    for data, network, epochs in (
        ("cifar10", "ResNet-56++", (10, 100, 170)),
        ("imagenet2012", "ResNet-50", (10, 40, 85)),
    ):
        method = "SGD + BatchNorm" if network == "ResNet-50" else "SGD"
        known, model, _ = compiled(Cell("atmc", data, network, method))
        first, then, last = [rate(model, epoch) for epoch in epochs]
        assert epochs[-1] < known.epochs and first > then > last


def test_schedule_grows_with_four_times_the_epochs():
    recipe = recipes.load("taylor/figure1", "paper")
    long = [c for c in recipe.cells if "epochs" in dict(c.options)]
    for cell in long:
        known, model, _ = compiled(cell)
        assert known.epochs == 800
        found = [rate(model, epoch) for epoch in (390, 410)]
        assert found == pytest.approx([1e-4, 1e-5])
    assert len(long) == 2 * 5  # samples, and the means


def test_prior_variance_and_precision_share_a_run():
    cells = [
        Cell("vogn", "imagenet2012", "ResNet-18", "VOGN", options)
        for options in (
            (("prior_precision", 10.0),),
            (("prior_variance", 0.1),),
        )
    ]
    one, other = (settings_of(cell, "VOGN", "small") for cell in cells)
    assert one == other


def test_pretrained_networks_take_normalized_images():
    layer = keras.layers.Conv2D(4, 3, bias_initializer="normal")
    x = np.random.default_rng(0).integers(0, 256, (2, 5, 5, 3))
    x = x.astype("float32")
    expected = layer(keras.applications.resnet.preprocess_input(x.copy()))
    networks.take_normalized(layer)
    found = layer(bdl.datasets.SPECS["imagenet2012"].normalize(x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_network_without_batch_norm_has_no_such_layer(scale):
    for name in recipes.names():
        for cell in recipes.load(name, scale).cells:
            known = dict(cell.options)
            if known.get("batch_norm", True):
                continue
            data = types.SimpleNamespace(input_shape=(32, 32, 3), classes=10)
            model = networks.make(
                cell, data, scale, of_network(batch_norm=known["batch_norm"])
            )
            kinds = {type(layer) for layer in model.layers}
            assert keras.layers.BatchNormalization not in kinds
            return
    raise AssertionError("no recipe leaves it out")


@pytest.mark.parametrize(
    ("paper", "network", "momentum"),
    [
        ("vogn", "ResNet-18", 0.9),
        ("swag", "PreResNet-56", 0.9),
        ("atmc", "ResNet-56", 0.997),
    ],
)
def test_networks_follow_the_conventions_of_the_papers_libraries(
    paper, network, momentum
):
    methods = {"vogn": "VOGN", "swag": "SGD", "atmc": "SGD + BatchNorm"}
    options = (("augmented", True),) if paper == "vogn" else ()
    cell = Cell(paper, "cifar10", network, methods[paper], options)
    known = settings_of(cell, methods[paper], "paper")
    data = types.SimpleNamespace(input_shape=(32, 32, 3), classes=10)
    model = networks.make(cell, data, "paper", known)
    norms = [
        (layer.momentum, layer.epsilon)
        for layer in model.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(norms) > 10 and set(norms) == {(momentum, 1e-5)}
    for layer in model.layers:
        if not hasattr(layer, "kernel") or layer.kernel.shape[-1] < 32:
            continue
        *size, inputs, outputs = layer.kernel.shape
        fan = np.prod(size) * (inputs + outputs) / 2
        if paper == "swag":  # He et al.
            fan = np.prod(size) * inputs / 2
        stddev = np.std(layer.kernel.numpy())
        assert stddev == pytest.approx(fan**-0.5, rel=0.1), layer.name


def test_error_asks_for_weights_that_keras_lacks(tmp_path):
    cell = Cell("swag", "imagenet2012", "DenseNet-161", "SGD")
    data = types.SimpleNamespace(input_shape=(32, 32, 3), classes=10)
    with pytest.raises(SystemExit, match="DenseNet-161.weights.h5, as"):
        networks.make(
            cell, data, "paper", of_network(pretrained=True), tmp_path
        )
