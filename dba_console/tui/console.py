"""The Textual application: maps keys to actions, and new data to lines. All server data come from `time_travel`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, cast

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.history.duration_trend import NO_WINDOWS, TargetJobHistory, windows_of
from dba_console.tui.feed import Feed
from dba_console.tui.key_actions import KeyActions
from dba_console.tui.keys import Key, find_key, keys_of, panel_titles
from dba_console.tui.loaders import BackgroundLoader, RunbooksArrived, read_history, read_runbooks
from dba_console.tui.screen_view import ScreenView
from dba_console.tui.terminal import Colours, ScreenOptions, TerminalGuard
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack
from dba_console.watch.drawing.terminal_styles import COLOURED
from dba_console.watch.drawing.text_elements import Line, Style, fit_line

# Rich styles of all meanings. Without colour (`mono`) weight and reverse video remain.

_MONO: dict[Style, str] = {
    "": "",
    "dim": "dim",
    "title": "bold",
    "ok": "",
    "warn": "bold",
    "crit": "bold reverse",
    "stale": "dim",
    "changed": "underline",
    "bar": "",
    "key": "bold",
    "head": "bold",
    "selected": "reverse",
}

StyleTable = dict[str, RichStyle]


def style_table(colours: Colours) -> StyleTable:
    """Return the Rich style of every meaning a span can have."""
    table = _MONO if colours == "mono" else COLOURED
    return {name: RichStyle.parse(text) if text else RichStyle.null() for name, text in table.items()}


# Lines to strips: the last step before the terminal. Text is never parsed as markup.


def paint(spans: Line, cells: int, table: StyleTable) -> Strip:
    """Return the line in exactly `cells` cells."""
    fitted = fit_line(spans, cells)
    segments = [Segment(text, table[style]) for text, style in fitted if text]
    return Strip(segments, cells)


# The only widget: lines on the terminal. Only changed lines are repainted, which matters on a slow connection.


class Canvas(Widget, can_focus=True):
    """Shows lines; passes keys, clicks and the wheel on as bubbling events."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    class Resized(Message):
        """The canvas has another size: all lines must be laid out again."""

    def __init__(self, table: StyleTable) -> None:
        super().__init__()
        self._table = table
        self.lines: list[Line] = []
        """What is shown."""
        self.painted = 0
        """Lines painted since the start; used by tests to measure repainting."""

    def show(self, lines: list[Line]) -> None:
        """Take the lines of a new frame and repaint those that differ."""
        before, self.lines = self.lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        width = self.size.width
        changed = [Region(0, y, width, 1) for y, spans in enumerate(lines) if spans != before[y]]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        self.painted += 1
        spans = self.lines[y] if y < len(self.lines) else ()
        return paint(spans, self.size.width, self._table)

    def on_resize(self, event: events.Resize) -> None:
        self.lines = []
        self.post_message(self.Resized())


# The command palette (ctrl+p): the keys by their titles.


class KeyCommands(Provider):
    """Every key of the screen as a command of the palette."""

    def _commands(self) -> Iterator[tuple[str, str, Key]]:
        titles = panel_titles()
        for key in keys_of(cast("ConsoleApp", self.app).view.where):
            if key.action == "palette":
                continue
            title = f"Panel: {titles[key.shown]}" if key.group == "panels" and key.shown in titles else key.title
            yield f"{title}  ({key.shown})", key.help, key

    async def discover(self) -> Hits:
        for text, help_text, key in self._commands():
            yield DiscoveryHit(Content(text), partial(self._act, key), text=text, help=help_text or None)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, help_text, key in self._commands():
            if (score := matcher.match(f"{text} {help_text}")) > 0:
                yield Hit(score, Content(text), partial(self._act, key), text=text, help=help_text or None)

    def _act(self, key: Key) -> None:
        cast("ConsoleApp", self.app).act(key)


# Textual's Linux driver, which stops writing after the terminal hung up.


class ConsoleDriver(LinuxDriver):
    """Writes until the guard reports that the terminal hung up."""

    def write(self, data: str) -> None:
        guard = cast("ConsoleApp", self._app).guard
        if guard is None or not guard.hung_up:
            super().write(data)


SUSPEND = "ctrl+z"
"""Works while text is typed too, as in any terminal program."""
PLAY_INTERVAL_S = 0.25
"""Between two frames while playing: smooth enough, and little traffic."""
CHECK_INTERVAL_S = 1.0
"""Between two checks whether the agent still sends."""


class Arrived(Message, bubble=False):
    """The mailbox holds something. Several such messages are merged into one."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Arrived)


class ConsoleApp(App[int], inherit_bindings=False):
    """The screen. Owns the view stack (what is shown) and the actions (what keys do)."""

    CSS = "Screen { layers: base; background: ansi_default; color: ansi_default; }"
    COMMANDS = {KeyCommands}
    BINDINGS: ClassVar[list[BindingType]] = []
    COMMAND_PALETTE_BINDING = "ctrl+p"
    ESCAPE_TO_MINIMIZE = False

    def __init__(
        self,
        feed: Feed,
        options: ScreenOptions,
        colours: Colours,
        *,
        load_runbooks: Callable[[], RunbooksArrived] | None = None,
        load_job_history: Callable[[], TargetJobHistory] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(driver_class=ConsoleDriver)
        self.theme = "ansi-dark"
        self.guard: TerminalGuard | None = None
        self.failure: BaseException | None = None
        """Error that ended the screen, for run_console to report; None if the operator left."""
        self._feed = feed
        self._canvas = Canvas(style_table(colours))
        self.navigator = TimeNavigator(feed, clock, begin_at=options.at)
        windows = NO_WINDOWS if options.jobs is None else windows_of(options.jobs)
        self.view_stack = ViewStack(self.navigator, feed, ascii=options.ascii, windows=windows)
        runbook_loader: BackgroundLoader[RunbooksArrived] = BackgroundLoader(
            "runbooks", load_runbooks or (lambda: read_runbooks(options.runbooks)),
            lambda why: RunbooksArrived(problem=why), feed.mailbox.put,
        )  # fmt: skip
        job_history_loader: BackgroundLoader[TargetJobHistory] = BackgroundLoader(
            "job history", load_job_history or (lambda: read_history(feed.session)),
            lambda why: TargetJobHistory(note=why), feed.mailbox.put,
        )  # fmt: skip
        self._actions = KeyActions(
            self.view_stack,
            self.navigator,
            feed,
            runbook_loader,
            job_history_loader,
            leave=self._leave,
            copy=self.copy_to_clipboard,
            palette=self._palette,
            suspend=self._suspend_to_shell,
        )
        self._run_request = options.run_request
        self._loop: asyncio.AbstractEventLoop | None = None
        self._trouble: str | None = None

    @property
    def view(self) -> ScreenView:
        """The view the keys act on."""
        return self.view_stack.view

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_mount(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._canvas.focus()
        self._feed.mailbox.wake = self._wake
        # After `fg` nothing of what was painted is left on the terminal.
        self.app_resume_signal.subscribe(self._canvas, lambda _: self.refresh(layout=True))
        self._play_timer = self.set_interval(PLAY_INTERVAL_S, self._play, pause=True)
        self.set_interval(CHECK_INTERVAL_S, self._check_header_footer)
        self._take_arrivals()

    # Arrivals

    def _wake(self) -> None:
        # Called from the feed's threads, also while the screen is closing and no longer needs it.
        try:
            self.post_message(Arrived())
        except RuntimeError:
            pass

    def on_arrived(self) -> None:
        self._take_arrivals()

    def _take_arrivals(self) -> None:
        shown = self.navigator.take_arrivals()
        if self.navigator.failure is not None:
            self.failure = self.navigator.failure
            self.exit(1)
            return
        if self._run_request is not None and self.navigator.connection_state == "attached":
            asked, self._run_request = self._run_request, None
            self._actions.runbooks.ask_for_run(asked)
        self._actions.jobs.reread_job_history()
        self._actions.pending_reverts.start_awaited_revert()
        if (
            self._actions.pending_reverts.offer_pending_reverts()
            or self._actions.runbooks.open_awaited_run()
            or shown
            or self.view_stack.header_or_footer_changed()
        ):
            self.paint()

    def _play(self) -> None:
        if self.navigator.cursor.playing and self.navigator.play():
            self.paint()

    def _check_header_footer(self) -> None:
        if self.view_stack.header_or_footer_changed():
            self.paint()

    # Painting

    def paint(self) -> None:
        """Lay out the view and paint the lines that changed."""
        # A paused timer does not wake the process.
        (self._play_timer.resume if self.navigator.cursor.playing else self._play_timer.pause)()
        width, height = self._canvas.size
        if width and height:
            self._actions.runs.update_question_prompt()
            self._canvas.show(self.view_stack.lines(width, height))

    def on_canvas_resized(self) -> None:
        self.paint()

    # Input

    def on_key(self, event: events.Key) -> None:
        if self.screen is not self._canvas.screen:
            return  # the palette handles its own keys
        event.stop()
        event.prevent_default()
        if self._actions.runs.is_rest_of_answer(event.key, event.character):
            self.paint()
            return
        self.navigator.notice = None
        prompt = self.view_stack.prompt
        if prompt is not None and event.key != SUSPEND and not prompt.passes(event.key):
            self.view_stack.type_into_prompt(event.key, event.character)
        elif (key := find_key(self.view.where, event.key)) is not None:
            self.act(key)
            return
        elif (capital := find_key(self.view.where, event.key.upper())) is not None:
            self.navigator.notice = f"{capital.shown}, the capital letter: {capital.title}"
        self.paint()

    def act(self, key: Key) -> None:
        """Perform a key, pressed or chosen from the palette."""
        self._actions.perform(key)
        if self._running:
            self.paint()

    def on_paste(self, event: events.Paste) -> None:
        if self.view_stack.prompt is not None:
            self.view_stack.prompt.paste(event.text)
            self.paint()

    def on_click(self, event: events.Click) -> None:
        if self.screen is not self._canvas.screen:
            return
        row, column = event.screen_y, event.screen_x
        if row == self._canvas.size.height - 1:
            if (key := self.view_stack.footer_key(column, self._canvas.size.width)) is not None:
                self.act(key)
            return
        if (action := self.view_stack.click(row, column)) is not None:
            self._actions.run(action)
        self.paint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.view.wheel(3)
        self.paint()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.view.wheel(-3)
        self.paint()

    # Leaving

    def _leave(self) -> None:
        self.exit(0)

    def _suspend_to_shell(self) -> None:
        """Stop this process like any terminal program, or show why it is not possible; `fg` resumes it."""
        if os.getpgrp() == os.getsid(0):
            self.navigator.notice = "cannot suspend: not started from a shell with job control"
            return
        self._suspend_signal()
        # Stop the whole process group: `dba-console demo` waits for this process, and the shell for it.
        os.killpg(os.getpgrp(), signal.SIGTSTP)

    def _palette(self) -> None:
        self.action_command_palette()

    def end_from_thread(self) -> None:
        """Request an orderly exit from another thread; the guard ends the process if this has no effect."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.exit, 130)

    def _handle_exception(self, error: Exception) -> None:
        # Textual's report prints local variables. Keep only the error, for run_console and the test driver.
        self._return_code = 1
        self.failure = self.failure or error
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """Called by Textual with a rendered failure; its text may hold values, so it is not shown."""
        self._handle_exception(RuntimeError("the terminal library failed"))
