"""The postmortem of an incident: facts gathered from recordings (`facts`), rendered as Markdown and as HTML."""
