"""Questions put in words, and answers read: nothing is taken for an answer that does not say plainly what it means."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.plans.plan import Block, Confirmation
from dba_console.plans.run_view import Option, quote_for_typing
from dba_console.runbook.run_state import END, RunState

ACKNOWLEDGED = "y"
"""The letter of an `ack`."""
DECLINED = frozenset({"n", "no"})
YES = "yes"

COUNTED = " (how many it acts on)"
NAMED = " (the name of the target)"
ITS_NAME = " (its name)"

GO_ON = Option(key="continue", text="go on")
GIVE_UP = Option(key="abort", text="end the run here")
PAUSED = (GO_ON, GIVE_UP)
NONE = Option(key="none", text="leave it out")
"""The only answer where no row is chosen."""


class NotAnAnswer(Exception):
    """What was typed does not do, and why."""


def chosen(options: Iterable[Option], text: str) -> tuple[Option, str]:
    """The option that is meant, and the reason given. Raises NotAnAnswer."""
    key, _, reason = text.strip().partition(" ")
    by_key = {option.key: option for option in options}
    option = by_key.get(key)
    if option is None:
        of = f"not {next(iter(by_key))!r}" if len(by_key) == 1 else f"none of {', '.join(by_key)}"
        raise NotAnAnswer(f"{key or 'nothing'!r} is {of}")
    reason = reason.strip()
    if option.needs_reason and not reason:
        raise NotAnAnswer(f"{key} needs a reason: {key} REASON")
    return option, reason


def confirms(confirmation: Confirmation, expects: str, text: str) -> bool:
    """True: confirmed; False: declined. Raises NotAnAnswer."""
    typed = text.strip()
    accepted = {"ack": ACKNOWLEDGED, "yes": YES, "type": expects}[confirmation.level]
    if not accepted:
        raise NotAnAnswer("it is not known what would have to be typed, so nothing confirms it")
    if typed == accepted or (confirmation.level == "ack" and typed.lower() in (ACKNOWLEDGED, YES)):
        return True
    if typed.lower() in DECLINED:
        return False
    raise NotAnAnswer(
        f"{typed!r} is not {accepted!r}; nothing was done" if typed else "nothing was typed; nothing was done"
    )


def confirms_start(text: str) -> bool:
    """Whether to start. Raises NotAnAnswer."""
    typed = text.strip().lower()
    if typed == YES:
        return True
    if typed in DECLINED:
        return False
    raise NotAnAnswer(f"type {quote_for_typing(YES)} to start, no to leave everything as it is")


def expected(confirmation: Confirmation, state: RunState, count: int | None, name: str = "") -> str:
    """The text that has to be typed; empty where it cannot be told, and then nothing confirms. `name` is that of the
    one thing it acts on."""
    if confirmation.level == "ack":
        return ACKNOWLEDGED
    if confirmation.level == "yes":
        return YES
    if confirmation.text == "target":
        return state.target
    if confirmation.text == "name" and name:
        return name
    if confirmation.text in ("count", "name"):
        return "" if count is None else str(count)
    return confirmation.text


def confirmation_text(
    what: str, confirmation: Confirmation, expects: str, target: str, part: str = "", name: str = ""
) -> str:
    """What is asked before something is done: what, where, to which `part` of the rows, and how it is confirmed."""
    where = ", ".join(filter(None, (f"On {target}" if target else "", part)))
    where = f" {where}:" if where else ""
    what = f"{what.rstrip().rstrip('.?!')}.{where} "
    if confirmation.level == "ack":
        how = f"press {ACKNOWLEDGED} to go on, n to stop here"
    else:
        meant = {"count": COUNTED, "target": NAMED, "name": ITS_NAME if name else COUNTED}.get(confirmation.text, "")
        how = (
            f"type {quote_for_typing(expects or '?')}{meant if confirmation.level == 'type' else ''} to go "
            f"on, no to stop here"
        )
    how = how if where else how[0].upper() + how[1:]
    return what + how + ("; a second person types it too" if confirmation.people > 1 else "")


def after_failure(*, timed_out: bool, may_skip: bool, input_names: Iterable[str] = ()) -> tuple[Option, ...]:
    """What can be done about a block that failed; `given` are the inputs of its step that it uses."""
    options = [Option(key="retry", text="look and try again")]
    if names := ", ".join(input_names):
        options.append(Option(key="input", text=f"give {names} again, then try again"))
    if timed_out:
        options.append(Option(key="wait", text="wait as long again"))
    if may_skip:
        options.append(Option(key="skip", text="leave it out", needs_reason=True))
    return (*options, GIVE_UP)


SETTLING = (
    Option(key="again", text="look for evidence again"),
    Option(key="ok", text="it was done", needs_reason=True),
    Option(key="failed", text="it was not done", needs_reason=True),
    GIVE_UP,
)


def decisions(block: Block) -> tuple[Option, ...]:
    """The options of a `choose`."""
    return tuple(
        Option(key=str(one["key"]), text=str(one.get("text", ""))) for one in block.settings.get("options", ())
    )


def leads_to(block: Block, key: str) -> str:
    """The step an option leads to, or the end; empty: what follows."""
    goto = next((str(one.get("goto") or "") for one in block.settings.get("options", ()) if one["key"] == key), "")
    return "" if goto == "next" else goto


def place(goto: str) -> str:
    return "the end" if goto == END else goto
