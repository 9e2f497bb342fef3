"""The subject disks: file systems and databases, when they are full, and temporary files."""
