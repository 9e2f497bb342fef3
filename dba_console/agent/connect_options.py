"""The monitor connection's limits, from the configuration."""

from __future__ import annotations

from dba_console.config import AgentConfig
from dba_console.probes.postgres.monitor_options import MonitorOptions
from dba_console.units import parse_duration


def monitor_options(config: AgentConfig, host_panels: bool | None) -> MonitorOptions:
    """Limits in seconds. Raises UsageError naming a duration that cannot be read."""
    return MonitorOptions(
        statement_timeout_s=parse_duration(config.statement_timeout),
        lock_timeout_s=parse_duration(config.lock_timeout),
        connect_timeout_s=parse_duration(config.connect_timeout),
        host_panels=host_panels,
        query_texts=config.query_texts,
    )
