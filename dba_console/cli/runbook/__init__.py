"""`dba-console runbook`: documents that are walked through. Each subcommand is a module of its own."""

from __future__ import annotations

from dba_console.cli.options import new_app
from dba_console.cli.runbook import lint, listing, new, plan, resume, run, run_history, show

app = new_app("Runbooks: list, read, check, rehearse and run them.")

app.command("list")(listing.list_)
app.command("show")(show.show)
app.command("lint")(lint.lint)
app.command("plan")(plan.plan)
app.command("new")(new.new)
app.command("run")(run.run)
app.command("rehearse")(run.rehearse)
app.command("resume")(resume.resume)
app.command("runs")(run_history.runs)
