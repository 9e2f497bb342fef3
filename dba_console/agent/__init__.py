"""The agent: the process that monitors a target. Lanes, collector, socket, lifecycle. No terminal, no Textual."""
