"""What is concluded: rules that look at one tick, and the judge that raises, joins and clears what they see.

One module per family. Rules are pure but for the memory they are handed; nothing here reads, writes or waits.
"""
