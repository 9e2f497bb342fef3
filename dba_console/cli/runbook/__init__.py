"""`dba-console runbook`: list, show, check, rehearse and run runbooks."""

from __future__ import annotations

from dba_console.cli.options import new_app
from dba_console.cli.runbook import documents, run, run_history

app = new_app("Runbooks: list, show, check, rehearse and run them.")

app.command("list")(documents.list_)
app.command("show")(documents.show)
app.command("lint")(documents.lint)
app.command("plan")(documents.plan)
app.command("new")(documents.new)
app.command("run")(run.run)
app.command("rehearse")(run.rehearse)
app.command("resume")(run.resume)
app.command("runs")(run_history.runs)
