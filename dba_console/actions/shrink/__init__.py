"""A big file freed from its end in steps that nobody on its disk notices."""
