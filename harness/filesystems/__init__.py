"""File systems and their modes, as files describe them."""
