"""Cases of recurrent and hybrid decoders: model_type -> name -> Case."""

RECURRENT = {}
