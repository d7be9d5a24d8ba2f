"""Pages: the report of a reproduction, an inspection and a judgement. Nothing is measured here."""
