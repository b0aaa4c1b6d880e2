"""Cases of decoders with experts: model_type -> name -> Case."""

MIXTURES = {}
