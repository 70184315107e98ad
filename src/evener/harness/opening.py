"""The first events of a run: those that a prompt or a resume writes. Reads the clock; writes nothing itself."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.context.prompt import PromptContext, SystemPrompt, check_stable, check_unchanged, cut_at_mark, render
from evener.driver import Driver
from evener.errors import BadValue, UsageError
from evener.loop.state import RunState
from evener.observe.trace_context import current_trace
from evener.store.protocol import Log
from evener.transcript.ask import ModelSettings
from evener.transcript.blocks import Block, TextBlock, json_text
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transcript.transcript import Transcript

Whole = str | Iterable[TextBlock] | SystemPrompt | None
Given = Whole | Callable[[PromptContext], Whole]
Blocks = tuple[TextBlock, ...]
Rest = Callable[[], Blocks]


class System:
    """The system prompt of a harness. Its threads share this object; prompt functions get `deps`."""

    def __init__(self, given: Given, *, deps: object = None) -> None:
        function = given if callable(given) else None
        if function is not None:
            _check_takes_context(function)
        self._function: Callable[[PromptContext], Whole] | None = function
        self._whole: Blocks | SystemPrompt = () if callable(given) else _sound(given)
        self._deps = deps
        self._before: Blocks | None = None  # the stable parts, as they were the last time

    def begun(self, *, thread: str, run: str) -> Blocks:
        """Return the system prompt of a new run."""
        stable, rest = self._render(thread, run)
        return stable + rest()

    def resumed(self, known: Blocks, *, thread: str, run: str) -> Blocks:
        """Return the system prompt of a resumed run: `known`, unless the stable parts have changed."""
        stable, rest = self._render(thread, run)
        count = len(stable)
        changes = self._function is not None or isinstance(self._whole, SystemPrompt)
        if changes and known[:count] == stable and not cut_at_mark(known[count:]):
            return known
        return stable + rest()

    def _render(self, thread: str, run: str) -> tuple[Blocks, Rest]:
        """Return the stable blocks, and a function that renders the other blocks."""
        whole = self._whole
        if self._function is None and not isinstance(whole, SystemPrompt):
            return whole, tuple
        context = PromptContext(thread=thread, run=run, at=time(), deps=self._deps)
        if self._function is not None:
            whole = _sound(self._function(context))
        if isinstance(whole, SystemPrompt):
            return self._stable(whole, context), lambda: render(SystemPrompt(context=whole.context), context)
        stable = cut_at_mark(whole)
        return stable, lambda: whole[len(stable) :]

    def _stable(self, prompt: SystemPrompt, context: PromptContext) -> Blocks:
        """Return the stable parts.

        Raises an error if they differ from the last rendering; a function may return another prompt each time.
        """
        before = self._before if self._function is None else None
        if before is None:
            check_stable(prompt, context)
        stable = render(replace(prompt, context=""), context)
        if before is not None:
            check_unchanged(before, stable)
        self._before = stable
        return stable


def _check_takes_context(function: Callable[..., object]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise UsageError(
            f"The function for `system` cannot be called: {error}. It takes one argument, a PromptContext."
        ) from None
    except ValueError:  # a builtin without a signature
        return


def _sound(whole: Whole) -> Blocks | SystemPrompt:
    if isinstance(whole, SystemPrompt):
        return whole
    if isinstance(whole, bytes | Mapping) or not isinstance(whole, str | Iterable | None):
        raise BadValue(
            "`system` takes a text, a list of TextBlock, a SystemPrompt, or a function that returns one of these; "
            f"not {type(whole).__name__}."
        )
    return Transcript(system=whole).system_blocks


Prompt = str | Message | Sequence[Block]
Beginning = tuple[ev.Event, ...]


class Said(msgspec.Struct, frozen=True):
    """The prompt that begins a run: the message, settings for this run only, and the caller's own object as JSON text."""

    message: Message
    settings: ModelSettings | None = None
    metadata: str = ""


NOT_RESUMABLE = ("done", "refusal", "length")


class Opener:
    """How the runs of one thread begin. `config` has no system prompt; only a new thread gets `history`."""

    def __init__(self, config: ev.Configured, system: System, history: Iterable[Message] = ()) -> None:
        self._config = config
        self._system = system
        self._history = tuple(history)

    def prompted(self, state: RunState, said: Said) -> Beginning:
        """Return the events with which a new run begins: configuration, history, prompt."""
        told = (ev.Imported(at=time(), messages=self._history),) if self._history and not len(state.transcript) else ()
        run = new_id()
        system = self._system.begun(thread=state.thread, run=run)
        begun = ev.Prompted(
            at=time(), run=run, message=said.message, trace=_trace_parent(), settings=said.settings, metadata=said.metadata
        )
        return (*self._configure(state, system), *told, begun)

    def resumed(self, state: RunState) -> Beginning:
        """Return the events with which a stopped or interrupted run is resumed."""
        if not state.run:
            raise UsageError(f"Thread {state.thread} has no run to resume. Give it a prompt instead.")
        if state.refused and state.finished is not None:
            raise UsageError(f"A hook refused the last prompt of thread {state.thread}. Send another prompt to continue.")
        if not self.is_resumable(state):
            raise UsageError(f"The last run of thread {state.thread} is finished. Send a prompt to continue.")
        known = state.config.system if state.config else ()
        configured = self._configure(state, self._system.resumed(known, thread=state.thread, run=state.run))
        if state.finished is not None:
            return (*configured, ev.Continued(at=time(), run=state.run))
        under_way = state.asking or any(pending.status in ("started", "paused") for pending in state.calls)
        taken_over = (ev.Resumed(at=time(), epoch=state.epoch + 1),) if under_way else ()
        # The process that was told to stop died before it wrote the end: this is the wish to go on, and it came later.
        again = (ev.Continued(at=time(), run=state.run),) if state.cancelled is not None and not state.refused else ()
        return (*configured, *taken_over, *again)

    def is_resumable(self, state: RunState) -> bool:
        """True if the last run is not finished, or stopped for a resumable reason. A refused prompt is not run again."""
        return state.finished is None or not (state.refused or state.finished.cause in NOT_RESUMABLE)

    def looked_at(self, state: RunState) -> Beginning:
        """Return the events that make the state as the next run would find it. Used for a preview: nothing is run."""
        return self._configure(state, self._system.begun(thread=state.thread, run=""))

    def without_history(self) -> "Opener":
        """Return this opener without the history, for a fork: a fork has its parent's messages."""
        return Opener(self._config, self._system)

    def for_model(self, name: str) -> "Opener":
        """Return this opener with another model."""
        return Opener(msgspec.structs.replace(self._config, model=name), self._system, self._history)

    def _configure(self, state: RunState, system: tuple[TextBlock, ...]) -> Beginning:
        known = state.config
        ours = msgspec.structs.replace(self._config, system=system)
        if known and msgspec.structs.replace(ours, at=known.at) == known:
            return ()
        return (msgspec.structs.replace(ours, at=time()),)


def moved_tools(state: RunState, beginning: Beginning) -> str:
    """Return a warning that names the tools whose declarations changed since the last request; empty if none changed.

    Added or removed tools are intended. A changed text or order is often an accident, such as an id or a time in a description.
    """
    known = state.config
    now = next((event for event in beginning if isinstance(event, ev.Configured)), None)
    if known is None or now is None or known.tools == now.tools or not state.transcript.last:
        return ""
    before = {spec.name: spec for spec in known.tools}
    names = [spec.name for spec in now.tools if before.get(spec.name, spec) != spec]
    both = {spec.name for spec in now.tools} & before.keys()
    orders = [[spec.name for spec in tools if spec.name in both] for tools in (known.tools, now.tools)]
    if not names and orders[0] != orders[1]:
        names = ["their order"]
    if not names:
        return ""
    return (
        f"The tools differ from those in the last request of this thread: {', '.join(names)} changed. The prompt cache of that "
        "request is lost. Keep names, descriptions, schemas and the order of tools the same, without times or ids in them."
    )


async def drop_cancels(log: Log) -> None:
    """Settle cancel notes that arrived after their run ended, so that they do not cancel the next run."""
    for note in await log.notes():
        if note.kind == "cancel":
            await log.settle(note.number)


def prompt_of(beginning: Beginning) -> ev.Prompted | None:
    """Return the prompt of a new run, which is the last of its first events; None if a run goes on."""
    last = beginning[-1] if beginning else None
    return last if type(last) is ev.Prompted else None


def with_hooks(driver: Driver, beginning: Beginning) -> Beginning:
    """Return the first events of the run, with the prompt as the hooks have changed or refused it."""
    prompted = prompt_of(beginning)
    if prompted is None:
        return beginning
    message, refused = driver.prompted(prompted.message)
    if message is prompted.message and not refused:
        return beginning
    return (*beginning[:-1], msgspec.structs.replace(prompted, message=message, refused=refused))


def run_of(beginning: Beginning, state: RunState) -> str:
    """Return the id of the run that these events begin or resume."""
    prompted = prompt_of(beginning)
    return state.run if prompted is None else prompted.run


def said_of(prompt: Prompt, settings: object = None, metadata: object = None) -> Said:
    """Return the checked prompt, settings and metadata of a new run. Raises UsageError for invalid ones."""
    message = message_of(prompt)
    if message.role != "user":
        raise UsageError(f"The prompt is a message of the role {message.role!r}. Give a text, or a user's message.")
    if is_blank(message):
        raise UsageError("The prompt is empty: there is nothing to ask. Give a text, or blocks of a user's message.")
    if settings is not None and not isinstance(settings, ModelSettings):
        raise UsageError(f"`settings` takes ModelSettings(...), or None; not {type(settings).__name__}.")
    if metadata is None:
        return Said(message, settings)
    if not isinstance(metadata, Mapping):
        raise UsageError(f"`metadata` takes a mapping of your own, such as {{'ticket': 7}}; not {type(metadata).__name__}.")
    return Said(message, settings, json_text(metadata, "The metadata of a run"))


def is_blank(message: Message) -> bool:
    """True if a message holds nothing but blank text."""
    return all(isinstance(block, TextBlock) and not block.text.strip() for block in message.blocks)


def message_of(prompt: Prompt) -> Message:
    """Return the prompt as a message."""
    match prompt:
        case Message():
            return prompt
        case str():
            return Message.user_text(prompt)
        case [*blocks]:
            return Message("user", tuple(blocks))
        case _:
            raise UsageError(f"A prompt is a text, a Message, or a list of blocks; not {type(prompt).__name__}.")


def _trace_parent() -> str:
    found = current_trace.get()
    return "" if found is None else found.header
