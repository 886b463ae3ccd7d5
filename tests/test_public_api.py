import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import KERAS
from tests.helpers import LITERT
from tests.helpers import cross_entropy

ROOT = Path(__file__).parent.parent
GUIDES = ROOT / "examples" / "guides"
PAGES = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]


# In place of what takes long: a few epochs are enough.
SHORT = {
    "fit(train,": "fit(train, verbose=0,",
    "fit(*digits.train,": "fit(*digits.train, verbose=0,",
    "start_epoch=20)": "start_epoch=0)",
    "epochs=40": "epochs=3",
}


def snippets(page):
    """Yields the Python snippets of a page, at their lines."""
    text = page.read_text()
    for found in re.finditer(r"```python\n(.*?)```", text, re.S):
        line = text[: found.start(1)].count("\n")
        yield "\n" * line + found.group(1)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the snippets of a page take for granted, in small."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 4)).astype("float32")
    y = (x[:, 0] + 0.5 * rng.normal(size=32) > 0).astype("int32")
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(4),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2),
        ]
    )
    loss = cross_entropy()
    model.compile("sgd", loss)
    net = bdl.Sequential([keras.Input((4,)), bdl.layers.MeanFieldDense(2)])
    net.compile("adam", loss)
    p = bdl.prediction.ClassificationPrediction.from_probabilities(
        rng.dirichlet([1.0, 1.0], 32), y=y
    )
    # Members that do better than chance.
    weights = model.get_weights()
    weights[0], weights[6] = np.eye(4), np.outer([1, 0, 0, 0], [-1, 1])
    chain = bdl.posteriors.Ensemble(
        [
            [w + 0.1 * rng.normal(size=w.shape) for w in weights]
            for _ in range(4)
        ]
    )
    segmenter = keras.Sequential(
        [keras.Input((8, 8, 1)), keras.layers.Conv2D(2, 3, padding="same")]
    )
    segmenter.compile(loss=loss)
    return {
        "keras": keras,
        "bdl": bdl,
        "model": model,
        "net": net,
        "loss": loss,
        "train": tf.data.Dataset.from_tensor_slices((x, y)).batch(32),
        "val": (x, y),
        "x": x,
        "y": y,
        "x_images": rng.normal(size=(32, 8, 8, 1)).astype("float32"),
        "x_test": x,
        "y_test": y,
        "posterior": chain,
        "p": p,
        "p_svhn": p,
        "np": np,
        "segmenter": segmenter,
        "labelled_images": tf.data.Dataset.from_tensor_slices(
            (rng.normal(size=(12, 8, 8, 1)), rng.integers(0, 2, (12, 8, 8)))
        ).batch(3),
    }


def test_readme_links_to_every_guide():
    readme = PAGES[0].read_text()
    assert len(PAGES) > 10
    for guide in PAGES[1:]:
        assert f"(examples/guides/{guide.name})" in readme


def test_links_between_pages_lead_to_files():
    others = ["examples", "examples/papers", "tpu"]
    others = [ROOT / folder / "README.md" for folder in others]
    for page in [*PAGES, *others, ROOT / ".github" / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), (page.name, link)


# A net of one step may be best with any prior.
@pytest.mark.filterwarnings("ignore:The best prior precision is at the end")
@pytest.mark.filterwarnings("ignore:`export` writes one network")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(snippets(page))],
    ids=lambda page: page.stem,
)
def test_snippets_of_page_run_in_their_order(page, names):
    for snippet in snippets(page):
        if KERAS < LITERT and "litert" in snippet:
            pytest.skip("Keras before 3.13 has no LiteRT")
        for long, short in SHORT.items():
            snippet = snippet.replace(long, short)
        # The name and the empty lines before it put the page's own line into
        # the traceback.
        exec(compile(snippet, str(page), "exec"), names)  # noqa: S102
