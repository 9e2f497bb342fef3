"""One line of input: what is typed is what is sent."""

from __future__ import annotations

from dba_console.tui.prompt import MAX_CHARACTERS, Prompt, QuestionPrompt
from dba_console.watch.drawing.text_elements import line_text, line_width


def typed(prompt: Prompt, text: str) -> None:
    for sign in text:
        prompt.handle_key(sign, sign)


def test_enter_returns_the_text_and_ends_the_prompt() -> None:
    sent: list[str] = []
    prompt = Prompt("note", sent.append)
    typed(prompt, "pages are slow")
    assert prompt.handle_key("enter", "\r") is False
    assert sent == ["pages are slow"]


def test_escape_sends_nothing() -> None:
    sent: list[str] = []
    prompt = Prompt("note", sent.append)
    typed(prompt, "x")
    assert prompt.handle_key("escape", None) is False
    assert sent == []


def test_a_filter_follows_every_key_and_escape_reverts_it() -> None:
    seen: list[str] = []
    prompt = Prompt("filter", seen.append, seen.append)
    typed(prompt, "ab")
    prompt.handle_key("backspace", None)
    prompt.handle_key("escape", None)
    assert seen == ["a", "ab", "a", ""]


def test_the_line_is_edited_at_the_cursor() -> None:
    prompt = Prompt("note", lambda text: None)
    typed(prompt, "alpha beta")
    prompt.handle_key("ctrl+w", None)
    prompt.handle_key("home", None)
    typed(prompt, "x")
    prompt.handle_key("delete", None)
    prompt.handle_key("end", None)
    prompt.handle_key("left", None)
    prompt.handle_key("backspace", None)
    assert prompt.text == "xlph "
    prompt.handle_key("ctrl+u", None)
    assert prompt.text == " "


def test_a_pasted_text_becomes_one_line_of_limited_length() -> None:
    prompt = Prompt("note", lambda text: None)
    prompt.paste("a\nb\x1b[2J" + "c" * 2 * MAX_CHARACTERS)
    assert prompt.text.startswith("a b") and len(prompt.text) <= MAX_CHARACTERS
    assert "\x1b" not in line_text(prompt.line(80)[0])


def test_a_long_text_keeps_its_end_visible() -> None:
    prompt = Prompt("note", lambda text: None)
    typed(prompt, "0123456789" * 20)
    line, cursor = prompt.line(40)
    assert line_width(line) <= 40 and cursor < 40
    assert line_text(line).endswith("6789")


def test_tab_cycles_through_the_known_values_that_start_with_the_typed_text() -> None:
    prompt = Prompt("role", lambda text: None, values=("app", "admin", "bob"))
    assert prompt.explanation == "tab: app, admin, bob"
    typed(prompt, "a")
    seen = []
    for _ in range(3):
        prompt.handle_key("tab", "\t")
        seen.append(prompt.text)
    assert seen == ["app", "admin", "app"]


def asked(sent: list[str], *values: str) -> QuestionPrompt:
    return QuestionPrompt(
        "d/n", sent.append, on_cancel=lambda: sent.append("esc"), choices={"d": "ddl", "n": "none"},
        is_settled=lambda: True, values=values, view_keys=("x",),
    )  # fmt: skip


def test_one_letter_is_an_answer_only_at_the_start() -> None:
    sent: list[str] = []
    prompt = asked(sent)
    typed(prompt, "xn")
    assert sent == [] and prompt.handle_key("enter", "\r") is False
    assert sent == ["xn"]
    assert asked(sent).handle_key("n", "n") is False and sent[-1] == "none"


def test_a_single_known_value_is_filled_in_and_enter_takes_it() -> None:
    sent: list[str] = []
    prompt = asked(sent, "shop_jobs")
    assert prompt.text == "shop_jobs" and prompt.handle_key("enter", "\r") is False
    assert sent == ["shop_jobs"]


def test_keys_that_are_not_text_are_for_the_view_below() -> None:
    prompt = asked([])
    assert [prompt.passes(name) for name in ("up", "tab", "x", "d", "left")] == [True, True, True, False, False]
    typed(prompt, "1")
    assert not prompt.passes("x")
    assert not asked([], "a", "b").passes("tab")
