"""How shapes and dtypes in gomhc's signatures are checked while tests run; where a float is wanted, an int will do."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
