"""How signatures are checked while tests run: by beartype, an int being a float as PEP 484 has it."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
