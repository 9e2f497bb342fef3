"""Recordings of sessions: samples, events and runs, written to disk and read back.

    writing   recorder -> block_writer, unsealed_samples, points -> backlog -> store
    reading   recording -> timeline (block_reader, unsealed_samples) -> source, or damaged_file page by page
    keeping   verify, retention, listing
    runs      run_journal, run_records, run_reader, run_verification

A caller that records something never waits for the disk; unreadable data never hides readable data; missing data is
reported with its reason.
"""
