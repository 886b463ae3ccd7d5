"""Code of a user with a common mistake in each marked line."""

import keras_bdl as bdl

bdl.ATMC(frction=0.9)  # misspelt argument
bdl.ATMC(temprature=0.5)  # misspelt argument that the samplers share
bdl.SGLD(weight_decay=1e-4)  # an option that changes the target
bdl.ATMC("fast")  # wrong type
bdl.SGNHT(1e-3, dataset_size="many")  # wrong type
bdl.SGHMC(max_speed="none")  # wrong type
bdl.ATMC(prior="normal")  # wrong type
bdl.IVON(initial_curvature="first_batch")  # only VOGN and its like have it
bdl.VOGN(prior_precison=50.0)  # misspelt argument
bdl.VOGN(0.1, 100, 0.9)  # all others are passed by keyword
bdl.OGN(fallback="never")  # wrong choice
bdl.NoisyKFAC(prior=bdl.priors.Normal())  # an argument of the samplers
bdl.KFAC(update_every=2.5)  # wrong type
bdl.schedules.CyclicalCosine(1e-3)  # missing argument
bdl.ATCM()  # wrong name of an optimizer
bdl.layers.MeanFieldDense(10, trunction=1.0)  # misspelt argument
bdl.layers.RadialDense(10, truncation=1.0)  # only mean-field layers have it
bdl.layers.MeanFieldConv2D("8", 3)  # wrong type
bdl.layers.RadialConv1D(8)  # missing argument
bdl.objectives.SampledVI("scalar", temprature=0.1)  # misspelt argument
bdl.applications.ResNet18(filter=3)  # misspelt argument
