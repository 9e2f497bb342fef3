"""The process that watches: lanes, collector, socket, lifecycle. No terminal, no Textual."""
