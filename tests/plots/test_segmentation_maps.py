import numpy as np
import pytest

from keras_bdl import plots
from keras_bdl.prediction import ClassificationPrediction


def test_segmentation_maps_show_labels_outside_the_classes_as_no_class():
    rng = np.random.default_rng(0)
    p = ClassificationPrediction.from_probabilities(
        rng.dirichlet(np.ones(3), (2, 4, 5)), num_samples=2
    )
    y = rng.integers(0, 3, (2, 4, 5))
    y[0, 0] = 255
    images = rng.random((2, 4, 5))
    figure = plots.segmentation_maps(images, p, y)
    axes = figure.axes
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["0", "1", "2", "no class"]
    labels = axes[1].images[0].get_array()
    np.testing.assert_array_equal(labels.mask, y[0] == 255)
    np.testing.assert_array_equal(labels.compressed(), y[0][1:].ravel())
    known = np.minimum(y, 2)
    shown = [
        plots.segmentation_maps(images, p, labels).axes[1].images[0]
        for labels in (known, np.eye(3)[known])
    ]
    np.testing.assert_array_equal(*(image.get_array() for image in shown))
    with pytest.raises(ValueError, match="one label for each pixel"):
        plots.segmentation_maps(images, p, y[:, :2])


def test_segmentation_maps_of_one_sample_show_the_entropy():
    p = ClassificationPrediction.from_probabilities(np.full((1, 4, 4, 2), 0.5))
    figure = plots.segmentation_maps(np.zeros((1, 4, 4, 3)), p)
    assert figure.axes[2].get_title() == "entropy"
    assert len(figure.legends[0].get_texts()) == 2
    drawn = figure.axes[2].images[0].get_array()
    np.testing.assert_allclose(drawn, np.log(2.0))
