"""One line of input at the bottom of the screen. Pure: key names in, text and cursor position out."""

from __future__ import annotations

from collections.abc import Callable

from dba_console.watch.panels.text_elements import Line, Span, clean, cut, line, width

MAX_CHARACTERS = 500
"""Most characters of a note: a few sentences, not a document."""


class Prompt:
    """A question with its answer being typed.

    `done` is called with the text on enter; `changed`, if given, on every key, and with the empty text on escape.
    A `secret` shows only its length. An `offered` text can also be accepted with tab while it is unchanged.
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
    ) -> None:
        self.question = question
        self.explanation = explanation
        """Shown above the prompt: what is asked for, and why the last answer was not accepted."""
        self.text = text
        self._offered = text if offered else None
        self.position = len(text)
        self._on_enter = on_enter
        self._on_change = on_change
        self._secret = secret

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
        space = max(1, cells - width(head) - 1)
        before = self._visible_text(self.text[: self.position])
        while width(before) > space:
            before = before[1:]
        after = cut(self._visible_text(self.text[self.position :]), max(0, space - width(before)))
        return line(Span(head, "key"), before, Span(after[:1] or " ", "selected"), after[1:]), width(head + before)

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

    def _insert(self, text: str) -> None:
        text = text[: MAX_CHARACTERS - len(self.text)]
        self.text = self.text[: self.position] + text + self.text[self.position :]
        self.position += len(text)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.position = start
