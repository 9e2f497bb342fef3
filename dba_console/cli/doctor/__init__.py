"""What will and will not work here: each check says what was found, what is lost without it, and what mends it.

Checks are pure functions of facts gathered once; nothing is changed, and nothing that may hang is waited for.
"""
