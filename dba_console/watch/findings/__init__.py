"""Rules and findings: each rule checks one tick; the engine raises, groups by cause and clears findings.

One module per family. Rules are pure except for the memory passed to them; nothing here reads, writes or waits.
"""
