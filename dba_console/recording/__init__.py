"""What is remembered: the recording, its events, and the cursor that reads them back.

    writing   recorder -> openblock (blockwriter, segmentwriter, treewriter; tail; points) -> backlog -> writer -> store
    reading   recording -> timeline (blockreader, segmentreader, treereader; tailblock) -> source, or salvage by pages
    keeping   verify, retention, listing, resolve, when

The rule of the room: nobody who hands something over ever waits for a disk, nothing unreadable hides what is readable,
and what is missing is said with its reason.
"""
