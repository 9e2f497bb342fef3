"""What the waits of asynchronous I/O mean (18+): their names do not say who reads.

Names and meanings: PostgreSQL, wait_event_names.txt and storage/aio.
"""

from __future__ import annotations

from dba_console.core.sanitize import clean

ASYNC_IO = {
    "IO:AioIoCompletion": "an I/O worker or another session reads for it",
    "IO:AioIoUringSubmit": "it hands reads to the kernel by io_uring",
    "IO:AioIoUringExecution": "the kernel reads for it by io_uring",
    "LWLock:AioUringCompletion": "another session takes finished reads from the same io_uring",
    "LWLock:AioWorkerSubmissionQueue": "many sessions hand reads to the I/O workers at once",
    "Activity:IoWorkerMain": "an I/O worker with nothing to do",
}
"""wait_event_type:wait_event, and its meaning."""


def explained_wait(wait: str) -> str:
    """Return a wait with its meaning if its name does not say it.

    >>> explained_wait("IO:AioIoUringSubmit"), explained_wait("IO:DataFileRead")
    ('IO:AioIoUringSubmit, it hands reads to the kernel by io_uring', 'IO:DataFileRead')
    """
    meaning = ASYNC_IO.get(wait)
    return clean(wait) if meaning is None else f"{wait}, {meaning}"
