"""One line of input at the bottom of the screen. Pure: key names in, text and cursor position out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dba_console.watch.drawing.text_elements import Line, Span, clean, cut, line, line_width, text_width

MAX_CHARACTERS = 500
"""Most characters of a note: a few sentences, not a document."""


class Prompt:
    """A question with its answer being typed.

    `done` is called with the text on enter; `changed`, if given, on every key, and with the empty text on escape.
    A `secret` shows only its length. An `offered` text can also be accepted with tab while it is unchanged; otherwise
    tab goes through the `values`, known answers that begin with the text.
    """

    def __init__(
        self,
        question: str,
        on_enter: Callable[[str], None],
        on_change: Callable[[str], None] | None = None,
        text: str = "",
        *,
        secret: bool = False,
        explanation: str = "",
        offered: bool = False,
        values: Sequence[str] = (),
    ) -> None:
        self.question = question
        self._values = values
        self._completed = ""
        self.explanation = "\n".join(filter(None, (explanation, _values_line(values))))
        """Shown above the prompt: what to enter, and why the last answer was not accepted."""
        self.text = text
        self._offered = text if offered else None
        self.position = len(text)
        self._on_enter = on_enter
        self._on_change = on_change
        self._secret = secret
        self.hint = ""
        """Shown at the end of the line, if it fits."""

    def passes(self, name: str) -> bool:
        """Check whether the key is for the view below and not for the text."""
        return False

    def handle_key(self, name: str, character: str | None) -> bool:
        """Handle a key. Returns False when the prompt is done: answered or cancelled."""
        before = self.text
        if name == "enter" or (name == "tab" and self.text == self._offered):
            self._on_enter(self.text)
            return False
        if name in ("escape", "ctrl+c", "ctrl+g"):
            if self._on_change is not None:
                self._on_change("")
            return False
        if name == "tab":
            self._complete()
        else:
            self._edit(name, character)
        if self._on_change is not None and self.text != before:
            self._on_change(self.text)
        return True

    def paste(self, text: str) -> None:
        """Insert a text, with its line ends as blanks."""
        self._insert(" ".join(text.split()))
        if self._on_change is not None:
            self._on_change(self.text)

    def line(self, cells: int) -> tuple[Line, int]:
        """Return the prompt in at most `cells` cells, with its end visible, and the cell of the cursor."""
        head = f" {self.question}: "
        space = max(1, cells - text_width(head) - 1)
        before = self._visible_text(self.text[: self.position])
        while text_width(before) > space:
            before = before[1:]
        after = cut(self._visible_text(self.text[self.position :]), max(0, space - text_width(before)))
        spans = line(Span(head, "key"), before, Span(after[:1] or " ", "selected"), after[1:])
        spare = cells - line_width(spans) - text_width(self.hint) - 1
        if self.hint and spare > 0:
            spans = (*spans, Span(" " * spare + self.hint, "dim"))
        return spans, text_width(head + before)

    def _visible_text(self, text: str) -> str:
        return "*" * len(text) if self._secret else clean(text)

    def _edit(self, name: str, character: str | None) -> None:
        match name:
            case "backspace" | "ctrl+h":
                self._cut(max(0, self.position - 1), self.position)
            case "delete":
                self._cut(self.position, self.position + 1)
            case "ctrl+u":
                self._cut(0, self.position)
            case "ctrl+k":
                self._cut(self.position, len(self.text))
            case "ctrl+w":
                self._cut(self.text[: self.position].rstrip().rfind(" ") + 1, self.position)
            case "left":
                self.position = max(0, self.position - 1)
            case "right":
                self.position = min(len(self.text), self.position + 1)
            case "home" | "ctrl+a":
                self.position = 0
            case "end" | "ctrl+e":
                self.position = len(self.text)
            case _:
                if character is not None and character.isprintable():
                    self._insert(character)

    def _complete(self) -> None:
        """Replace the text by the next value that begins with what was typed."""
        typed = self._completed if self.text in self._values else self.text
        matches = [value for value in self._values if value.startswith(typed)]
        if matches:
            following = matches.index(self.text) + 1 if self.text in matches else 0
            self.text, self._completed = matches[following % len(matches)], typed
            self.position = len(self.text)

    def _insert(self, text: str) -> None:
        text = text[: MAX_CHARACTERS - len(self.text)]
        self.text = self.text[: self.position] + text + self.text[self.position :]
        self.position += len(text)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.position = start


MAX_VALUES = 8
"""Known values listed above a prompt."""


def _values_line(values: Sequence[str]) -> str:
    more = " …" if len(values) > MAX_VALUES else ""
    return f"tab: {', '.join(map(clean, values[:MAX_VALUES]))}{more}" if len(values) > 1 else ""


_READING_KEYS = frozenset(("up", "down", "pageup", "pagedown", "tab", "shift+tab", "f1", "ctrl+p", "ctrl+q"))
"""Keys that do not edit a line: they scroll the view below while a question is open."""


class QuestionPrompt(Prompt):
    """The prompt of a run's question, open as long as the question is.

    Enter without text leaves it open; `on_enter` reports that nothing was sent. `choices` maps a letter to the answer
    that it gives at once. Until `is_settled` returns True a letter is only text: it may have been meant for the
    previous screen. `view_keys` are keys for the view below as long as no text is typed. Escape calls `on_cancel` and
    closes the prompt. A single one of `values` is filled in.
    """

    def __init__(
        self,
        question: str,
        on_enter: Callable[[str], None],
        *,
        on_cancel: Callable[[], None],
        choices: Mapping[str, str],
        is_settled: Callable[[], bool],
        values: Sequence[str] = (),
        secret: bool = False,
        view_keys: Sequence[str] = (),
    ) -> None:
        super().__init__(question, on_enter, text=values[0] if len(values) == 1 else "", secret=secret, values=values)
        self._on_cancel = on_cancel
        self._choices = choices
        self._is_settled = is_settled
        self._view_keys = view_keys
        self.hint = "x choose  esc close" if "x" in view_keys else "esc close"
        self.by_letter = False
        """Whether the answer was given by one letter."""

    def passes(self, name: str) -> bool:
        if name == "tab" and self._values:
            return False
        return name in _READING_KEYS or (not self.text and name in self._view_keys)

    def handle_key(self, name: str, character: str | None) -> bool:
        if name == "enter":
            self._on_enter(self._choices.get(self.text, self.text))
            return not self.text
        if name in ("escape", "ctrl+c", "ctrl+g"):
            self._on_cancel()
            return False
        answer = self._choices.get(character or "") if not self.text and self._is_settled() else None
        if answer is None:
            return super().handle_key(name, character)
        self.by_letter = True
        self._on_enter(answer)
        return False
