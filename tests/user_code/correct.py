"""Code of a user that a type checker must accept."""

import keras

import keras_bdl as bdl

bdl.ATMC()
bdl.ATMC(1e-3, 60_000, temperature=0.5, seed=1, max_speed=None)
bdl.ATMC(
    keras.optimizers.schedules.CosineDecay(1e-3, 100),
    prior=bdl.priors.Normal(0.1),
    friction=0.95,
    gradient_accumulation_steps=2,
    name="sampler",
)
bdl.SGNHT(bdl.schedules.CyclicalCosine(1e-3, cycle_steps=10), prior=None)
bdl.SGHMC(temperature=bdl.schedules.LinearRamp(0.0, 1.0, end_step=10))
bdl.SGLD(1e-2, dataset_size=100, prior="default")
bdl.IVON(0.1, 60_000, beta_2=0.9999, seed=1, initial_curvature=0.5)
bdl.VOGN(
    prior_precision=50.0,
    initial_curvature="first_batch",
    exclude_from_inference=["BatchNormalization", "head"],
    fallback=False,
)
bdl.OGN(damping=1e-2, gradient_accumulation_steps=4, share_sample=False)
bdl.NoisyKFAC(1e-2, update_every=50, max_factor_size=None)
bdl.KFAC(temperature=0.5, augmentation_factor=10.0)
bdl.layers.MeanFieldDense(10, "relu", truncation=2.0, dataset_size=64)
bdl.layers.MeanFieldConv2D(8, (3, 3), padding="same", estimator="flipout")
bdl.layers.RadialEmbedding(10, 4, seed=1, mask_zero=True, name="table")
bdl.layers.WeightNormDense(10, scale_regularizer=bdl.priors.Laplace(5.0))
bdl.objectives.TaylorVI("diagonal", temperature=0.1, gradient_batch_size=8)
bdl.applications.ResNet18((32, 32, 3), 10, activation="softplus")
