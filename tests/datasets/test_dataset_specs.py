import pytest

from keras_bdl.datasets import SPECS
from keras_bdl.datasets._dataset_specs import SHARED_CLASSES


@pytest.mark.parametrize("pair", SHARED_CLASSES)
def test_shared_classes_have_the_same_name(pair):
    stored, meant = (SPECS[name].class_names for name in pair)
    same = {"car": "automobile", "automobile": "car"}
    for name, label in zip(stored, SHARED_CLASSES[pair], strict=True):
        known = name in meant or same.get(name) in meant
        assert (label >= 0) == known
        if known:
            assert meant[label] in (name, same.get(name))


def test_cifar_with_its_frame_is_40_pixels_wide():
    # vogn.txt, section 3: 32 x 32 images are padded to 40 x 40.
    for name in ("cifar10", "cifar100", "svhn_cropped"):
        assert 32 + 2 * SPECS[name].augment.keywords["padding"] == 40


def test_grades_from_2_on_are_referable():
    # radial.txt, section 4.1.
    spec = SPECS["diabetic_retinopathy_detection"]
    classes = [spec.class_names[c] for c in spec.label_map]
    assert classes == ["healthy"] * 2 + ["referable"] * 3
