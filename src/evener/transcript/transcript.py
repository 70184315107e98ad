"""A conversation: the path from a root message to one head. Immutable; a fork shares the past and copies nothing. Pure."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from evener.errors import BadValue
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    ImageBlock,
    Remote,
    Stored,
    TextBlock,
    ToolResult,
    as_tuple,
    check_type,
)
from evener.transcript.message import Message

Name = TypeVar("Name", bound=Hashable)
ELSEWHERE: tuple[type, ...] = (Stored, Remote)
"""Sources of media that are not in the message itself."""


class Grown(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The first `size` of the names that are shared, each with its value."""

    _shared: dict[Hashable, tuple[int, object]] = {}
    _size: int = 0
    _claims: dict[int, object] = {}  # by size: the token of the first that grew it from there on

    def __contains__(self, name: Hashable) -> bool:
        found = self._shared.get(name)
        return found is not None and found[0] < self._size

    def get(self, name: Hashable) -> object:
        """Return what a name stands for; None for one that is not there."""
        found = self._shared.get(name)
        return found[1] if found is not None and found[0] < self._size else None

    def plus(self, names: Mapping[Name, object]) -> "Grown":
        """Return it with more names. Those that are there already stay what they are."""
        growing = Growing(self)
        for name, value in names.items():
            growing.add(name, value)
        return growing.done()

    def _with(self, new: dict[Hashable, tuple[int, object]]) -> "Grown":
        """Return it with names that are not in it, numbered from its size on. It is not the empty one."""
        size, shared, claims = self._size, self._shared, self._claims
        if claims.setdefault(size, token := object()) is token:  # to set is one step: of two threads one is the first
            shared.update(new)
        else:
            shared, claims = self._copy() | new, {}
        return Grown(shared, size + len(new), claims)

    def _copy(self) -> dict[Hashable, tuple[int, object]]:
        return {name: found for name, found in tuple(self._shared.items()) if found[0] < self._size}

    def __iter__(self) -> Iterator[Hashable]:
        return (name for name, found in tuple(self._shared.items()) if found[0] < self._size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grown):
            return NotImplemented
        return self._size == other._size and all(other.get(name) == self.get(name) for name in self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Grown: {self._size} names>"


class Growing(msgspec.Struct, eq=False, gc=False):
    """A Grown while names are added."""

    base: Grown
    new: dict[Hashable, tuple[int, object]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self.new or name in self.base

    def get(self, name: Hashable) -> object:
        return self.new[name][1] if name in self.new else self.base.get(name)

    def add(self, name: Hashable, value: object = True) -> bool:
        """True if the name is a new one. One that is there already stays what it is."""
        base, new = self.base, self.new
        if name in new or (name in base._shared and base._shared[name][0] < base._size):
            return False
        new[name] = (base._size + len(new), value)
        return True

    def done(self) -> Grown:
        """Return all there is now. What is added later is not in it."""
        base, new = self.base, self.new
        if new:
            # the empty one is shared by all, so it is never grown itself
            self.base = base = base._with(new) if base._size else Grown(new, len(new))
            self.new = {}
        return base


class Node:
    """One message on a path, with the path before it. Compared by identity, which makes recognising a prefix cheap."""

    __slots__ = ("base", "depth", "media", "message", "parent")

    def __init__(self, message: Message, parent: "Node | None") -> None:
        self.message = message
        self.parent = parent
        self.base: Node
        """Where the path begins in memory."""
        self.media: int
        """What messages up to this one have: 2 if there are media that lie elsewhere, 1 if there are images, else 0."""
        if parent is None:
            self.depth, self.base, self.media = 1, self, _find_media(message.blocks, 0)
        else:
            self.depth, self.base, self.media = parent.depth + 1, parent.base, _find_media(message.blocks, parent.media)

    @property
    def first(self) -> Message:
        """The first message of a path that begins in memory with this node."""
        return self.message


class PagedNode(Node):
    """The last message of a path whose other messages are not in memory. They are loaded when they are first needed.

    `load` returns the node before this one, at depth `depth - 1`. It may take as long as reading all of them, and raises the
    errors of that.
    """

    __slots__ = ("_before", "_load")

    def __init__(self, message: Message, depth: int, load: Callable[[], Node | None], *, media: bool) -> None:
        self.message = message
        self.depth = depth
        self.base = self
        self.media = 2 if media else 1  # there may be images before it
        self._load: Callable[[], Node | None] | None = load if depth > 1 else None
        self._before: Node | None = None

    @property
    def parent(self) -> Node | None:  # type: ignore[override]  # it is never set
        """The node before this one, loaded if it was not."""
        load = self._load
        if load is not None:
            self._before = load()
            self._load = None
        return self._before

    @property
    def first(self) -> Message:
        """The first message of the whole path."""
        before = self.parent
        return before.base.first if before else self.message

    @property
    def is_loaded(self) -> bool:
        """True if the messages before this one are in memory."""
        return self._load is None


class Transcript:
    """Messages and, separately, the system prompt: codecs decide where to put it.

    `append` and `extend` return a new transcript; the old one is unchanged and shares every message with the new one. A
    message's `parent_id` is set to the message before it; only the first message may name a parent that is not here.
    """

    __slots__ = ("_head", "_system")

    def __init__(self, messages: Iterable[Message] = (), system: str | Iterable[TextBlock] | None = None) -> None:
        self._system = _system_blocks(system)
        self._head = _link(messages, None)

    @property
    def system(self) -> str | None:
        """The system prompt as one text, its parts joined by newlines; None when there is none."""
        return "\n".join(block.text for block in self._system) if self._system else None

    @property
    def system_blocks(self) -> tuple[TextBlock, ...]:
        """The system prompt in its parts, each of which may carry a cache mark."""
        return self._system

    @property
    def head(self) -> Node | None:
        """The node of the last message."""
        return self._head

    @property
    def first(self) -> Message | None:
        """The first message. Found at once, however long the path is."""
        return self._head.base.first if self._head else None

    @property
    def last(self) -> Message | None:
        """The last message."""
        return self._head.message if self._head else None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages from the root on."""
        return self.since(None)

    @property
    def page(self) -> PagedNode | None:
        """The node before which messages are not in memory; None when all are."""
        base = self._head.base if self._head is not None else None
        return base if type(base) is PagedNode and not base.is_loaded else None

    @property
    def has_far_media(self) -> bool:
        """True if there are media that lie in the blob store or behind a URL."""
        return self._head is not None and self._head.media > 1

    @property
    def has_images(self) -> bool:
        """True if there are images, or there may be some among messages that are not in memory."""
        return self._head is not None and self._head.media > 0

    def load(self) -> None:
        """Bring all messages into memory, if they are not."""
        if self.page is not None:
            self.since(None)

    def since(self, node: Node | None) -> tuple[Message, ...]:
        """Return the messages after a node of this path; all of them for None."""
        here = self._head
        if here is node:  # first: to ask for what is before a page would load it
            return ()
        if here is not None and here.parent is node:
            return (here.message,)
        found = self.grown_from(node)
        if found is None:
            raise BadValue("That node is not on this transcript's path. Ask `extends` first.")
        return tuple(found)

    def grown_from(self, node: Node | None) -> list[Message] | None:
        """Return the messages after a node; None if the path does not go through it. Costs as much as there are after it."""
        found: list[Message] = []
        here, depth = self._head, node.depth if node else 0
        while here is not None and here.depth > depth:
            found.append(here.message)
            here = here.parent
        if here is not node:
            return None
        found.reverse()
        return found

    def extends(self, node: Node | None) -> bool:
        """True if the path goes through this node. Costs as much as there are messages after it."""
        here = self._head
        depth = node.depth if node else 0
        while here is not None and here.depth > depth:
            here = here.parent
        return here is node

    def append(self, message: Message) -> "Transcript":
        """Return a transcript with one more message."""
        return _make(_link((message,), self._head), self._system)

    def extend(self, messages: Iterable[Message]) -> "Transcript":
        """Return a transcript with more messages."""
        return _make(_link(messages, self._head), self._system)

    def at(self, node: Node | None) -> "Transcript":
        """Return the transcript as it was when `node` was its head: the past of a fork."""
        if not self.extends(node):
            raise BadValue("That node is not on this transcript's path. Take a node from `head` of an earlier transcript.")
        return _make(node, self._system)

    def with_system(self, system: str | Iterable[TextBlock] | None) -> "Transcript":
        """Return the same messages under another system prompt."""
        return _make(self._head, _system_blocks(system))

    def __len__(self) -> int:
        return self._head.depth if self._head else 0

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript):
            return NotImplemented
        if self._system != other._system or len(self) != len(other):
            return False
        return self._head is other._head or self.messages == other.messages

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type["Transcript"], tuple[tuple[Message, ...], tuple[TextBlock, ...]]]:
        return Transcript, (self.messages, self._system)  # flat: a chain of nodes would be too deep to copy or pickle

    def __repr__(self) -> str:
        return f"<Transcript of {len(self)} messages, head {self.last.id if self.last else None}>"


def paged(
    last: Message, load: Callable[[], Node | None], *, depth: int, system: tuple[TextBlock, ...], media: bool
) -> Transcript:
    """Return a conversation of `depth` messages with only the last of them in memory. `load` gives the node before that one."""
    return _make(PagedNode(last, depth, load, media=media), system)


def has_media_elsewhere(messages: Iterable[Message], places: tuple[type, ...] = ELSEWHERE) -> bool:
    """True if they have media in one of these places."""
    for message in messages:
        for block in message.blocks:
            for part in block.content if isinstance(block, ToolResult) else (block,):
                if isinstance(part, ImageBlock | DocumentBlock) and isinstance(part.source, places):
                    return True
    return False


def _find_media(blocks: tuple[Block, ...], found: int) -> int:
    """Return what is found with these blocks, see `Node.media`. It runs for every message."""
    for block in blocks:
        if type(block) is ToolResult:
            for part in block.content:
                if type(part) is ImageBlock or type(part) is DocumentBlock:
                    found = max(found, _rate_media(part))
        elif type(block) is ImageBlock or type(block) is DocumentBlock:
            found = max(found, _rate_media(block))
    return found


def _rate_media(block: ImageBlock | DocumentBlock) -> int:
    return 2 if isinstance(block.source, ELSEWHERE) else int(type(block) is ImageBlock)


def _make(head: Node | None, system: tuple[TextBlock, ...]) -> Transcript:
    made = Transcript.__new__(Transcript)
    made._head = head
    made._system = system
    return made


def _link(messages: Iterable[Message], head: Node | None) -> Node | None:
    for message in messages if type(messages) is tuple else as_tuple(messages, "Transcript messages"):
        if not isinstance(message, Message):
            raise BadValue(f"A transcript holds messages, not {type(message).__name__}. Use Message.user_text(...).")
        head = Node(message if head is None else message.after(head.message.id), head)
    return head


def _system_blocks(system: str | Iterable[TextBlock] | None) -> tuple[TextBlock, ...]:
    if system is None or system == "":
        return ()
    if isinstance(system, str):
        return (TextBlock(system),)
    blocks = as_tuple(system, "Transcript.system")
    for block in blocks:
        check_type(block, (TextBlock,), "Each of Transcript.system")
    return blocks
