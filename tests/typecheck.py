"""How signatures are checked while tests run: by beartype, an int being a float as PEP 484 has it.

A size may be symbolic: it is so in a graph that is traced for images of any size.
"""

import torch
from beartype import BeartypeConf, FrozenDict, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict({int: int | torch.SymInt})))
