"""The settings of a training and of its predictions."""

import dataclasses
from typing import Literal

from typed import checked

# Settings that change the prediction alone. Cells that differ in these alone
# share a training.
OF_PREDICTIONS = (
    "samples",
    "scale",
    "batch_norm_update",
    "batch_norm_fraction",
)
# Keys of `published.toml` that describe the paper's run. No code reads them.
FACTS = (
    "activation",
    "dataset_size",
    "members",
    "scale_prior",
    "seeds",
    "test_size",
    "train_size",
    "unit",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a training and of its predictions.

    TOML files use the same names: `with` and `vary` of the recipes,
    `chosen.toml`, and `published.toml`, whose head explains the names that a
    paper prints. `None` leaves the choice to the library. A `Training` lists
    the settings that it cannot do without.

    Attributes:
        epochs: Number of epochs. 0 keeps a pretrained network as it is.
        batch_size: Size of a minibatch, over all replicas.
        augmented: Whether training images are augmented.
        augmentation: The augmentation, in words.
        image_size: Height and width of the images.
        validation_size: Number of training images kept for validation.
        validations: Number of validations in a training.
        validation_samples: Posterior samples of a validation.
        drawn_validation: Whether dropout is active in validations.

        filters: Channels of the first stage of the network.
        pretrained: Whether the training starts from pretrained weights.
        batch_norm: Whether the network has BatchNorm.
        batch_norm_momentum: Momentum of BatchNorm.
        batch_norm_epsilon: Epsilon of BatchNorm.
        kernel_initializer: Name of a Keras initializer, for all kernels.
        dropout_rate: Dropout rate of every layer with weights.

        optimizer: The optimizer of methods that work with any optimizer.
        learning_rate: The initial learning rate.
        schedule: See `learning_rates.of`.
        schedule_epochs: Length of the linear schedule. Defaults to `epochs`.
        swa_learning_rate: Learning rate from `start_epoch` on.
        milestones: Epochs after which `learning_rate_factor` applies.
        learning_rate_factor: Factor of the learning rate at a milestone.
        learning_rate_decay: Factor of the learning rate in every epoch.
        warmup_learning_rate: Learning rate at the start of a warm-up.
        warmup_epochs: Length of the warm-up.
        momentum: Momentum of SGD.
        nesterov: Whether SGD uses Nesterov momentum.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        l2: Coefficient c of the term c w in the gradient.
        weight_decay: The same coefficient, as PyTorch calls it.
        l2_of_batch_norm: Whether BatchNorm's weights have this term too.

        start_epoch: Epoch from which on SWA and SWAG collect weights.
        every: Epochs between two collected weights; may be below 1.
        rank: Number of columns of SWAG.
        keep_iterates: Epochs between two weights that are kept for figures.

        train_samples: Posterior samples in a training step, of each process.
        processes: Processes of the paper's run, each with samples of its own.
            See `compiling.samples_of_step`.
        prior_stddev: Standard deviation of the prior of layers.
        initial_rho: Initial stddev is `softplus(initial_rho)`.
        initial_stddev: Initial stddev of variational layers.
        truncation: Where draws of variational layers are cut, in stddevs.
        pretrain_epochs: Epochs that train the means alone.
        prior_cross_entropy: Whether to log the prior's part of the KL.
        gradient_variance_every: Epochs between two measurements of the
            gradient's variance.

        temperature: Temperature of the posterior.
        initial_temperature: Temperature at the start of its linear ramp.
        temperature_steps: Training steps of this ramp.
        prior_precision: Precision of the prior of the weights.
        initial_curvature: Curvature before the first step. Defaults to
            `None`: the first batch gives it, as in the paper of VOGN.
        damping: Damping of a natural-gradient optimizer.
        augmentation_factor: Factor rho of VOGN.
        update_every: Steps between two decompositions of the curvature.
        covariance: Covariance of an objective; `"none"` for MAP.
        variance: The variance of `covariance="fixed"`.
        initial_variance_ratio: Initial variance over the prior's variance.

        cycle_epochs: Epochs of one cycle of a sampler.
        burn_in_epochs: Epochs before the first kept sample.
        average_speed: Average speed of a sampler.
        max_speed: Largest speed of a sampler.
        friction: Friction of a sampler.

        samples: Posterior samples in a prediction.
        scale: Scale of SWAG's covariance.
        batch_norm_update: Whether each posterior sample gets BatchNorm
            statistics of its own.
        batch_norm_fraction: Share of the training data for these statistics.
    """

    epochs: int
    batch_size: int
    augmented: bool
    augmentation: str | None = None
    image_size: int | None = None
    validation_size: int | None = None
    validations: int
    validation_samples: int
    drawn_validation: bool = False

    filters: int | None = None
    pretrained: bool = False
    batch_norm: bool = True
    batch_norm_momentum: float | None = None
    batch_norm_epsilon: float | None = None
    kernel_initializer: str | None = None
    dropout_rate: float | None = None

    optimizer: Literal["SGD", "Adam", "AMSGrad"] | None = None
    learning_rate: float
    schedule: Literal["linear", "cosine"] | None = None
    schedule_epochs: int | None = None
    swa_learning_rate: float | None = None
    milestones: tuple[int, ...] | None = None
    learning_rate_factor: float | None = None
    learning_rate_decay: float = 1.0
    warmup_learning_rate: float | None = None
    warmup_epochs: int | None = None
    momentum: float = 0.0
    nesterov: bool = False
    beta_1: float | None = None
    beta_2: float | None = None
    l2: float | None = None
    weight_decay: float | None = None
    l2_of_batch_norm: bool = True

    start_epoch: int | None = None
    every: float | None = None
    rank: int | None = None
    keep_iterates: int | None = None

    train_samples: int = 1
    processes: int = 1
    prior_stddev: float | None = None
    initial_rho: float | None = None
    initial_stddev: float | None = None
    truncation: float | None = None
    pretrain_epochs: int = 0
    prior_cross_entropy: bool = False
    gradient_variance_every: int | None = None

    temperature: float = 1.0
    initial_temperature: float | None = None
    temperature_steps: int | None = None
    prior_precision: float | None = None
    initial_curvature: float | None = None
    damping: float | None = None
    augmentation_factor: float | None = None
    update_every: int | None = None
    covariance: Literal["none", "fixed", "scalar", "diagonal"] | None = None
    variance: float | None = None
    initial_variance_ratio: float | None = None

    cycle_epochs: int | None = None
    burn_in_epochs: int | None = None
    average_speed: float | None = None
    max_speed: float | None = None
    friction: float | None = None

    samples: int
    scale: float = 0.5
    batch_norm_update: bool = True
    batch_norm_fraction: float = 1.0

    @property
    def l2_or_weight_decay(self):
        """The coefficient c of the term c w in the gradient; 0 for none."""
        return self.l2 or self.weight_decay or 0.0

    def given(self, *names):
        """Returns the settings among these that are not `None`, by name.

        Args:
            *names: Names of settings.
        """
        values = {name: getattr(self, name) for name in names}
        return {k: value for k, value in values.items() if value is not None}

    def as_json(self, of_predictions=False):
        """Returns the settings of a training that differ from the defaults.

        File names made from these settings stay the same if a later version
        adds a setting with a default.

        Args:
            of_predictions: Whether to return the settings of `OF_PREDICTIONS`
                instead. Defaults to `False`.
        """
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if (field.name in OF_PREDICTIONS) == of_predictions
            and getattr(self, field.name) != field.default
        }


@dataclasses.dataclass(frozen=True)
class _OtherWords:
    """Settings that a recipe may write in another way."""

    prior_variance: float | None = None


def check_options(options, where):
    """Checks settings that a recipe names, and returns them by name.

    Args:
        options: Values by name. `prior_variance` is accepted too: it is the
            inverse of `prior_precision`.
        where: Place of the settings, for error messages.
    """
    others = {f.name for f in dataclasses.fields(_OtherWords)}
    known = {k: v for k, v in options.items() if k not in others}
    found = checked(Settings, known, where)
    found |= checked(
        _OtherWords, {k: options[k] for k in options.keys() & others}, where
    )
    return {name: found[name] for name in options}
