"""What is done at a screen: a closed union of frozen actions, and coordinates from one scale to another. Pure.

Coordinates are pixels of the screenshot, counted from its upper left corner.
"""

from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

__all__ = [
    "Action",
    "Click",
    "Delay",
    "Drag",
    "Keypress",
    "MouseDown",
    "MouseUp",
    "Move",
    "Navigate",
    "Point",
    "Screen",
    "ScreenAction",
    "Screenshot",
    "Scroll",
    "Type",
    "rescale",
]

Screen = tuple[int, int]
"""Width and height in pixels."""
Button = Literal["left", "middle", "right", "back", "forward"]
Place = Annotated[int, Meta(ge=0)]
Keys = Annotated[tuple[str, ...], Meta(description="keys that are held meanwhile, as in ['ctrl', 'shift']")]


class Point(Struct, frozen=True, forbid_unknown_fields=True):
    """A place on the screenshot, in pixels from the upper left corner."""

    x: Place
    y: Place


class Screenshot(Struct, frozen=True, tag_field="type", tag="screenshot", forbid_unknown_fields=True, omit_defaults=True):
    """Only look at the screen."""


class Click(Struct, frozen=True, tag_field="type", tag="click", forbid_unknown_fields=True, omit_defaults=True):
    """Click; without `at` where the pointer is. A `count` of 2 is a double click."""

    at: Point | None = None
    button: Button = "left"
    count: Annotated[int, Meta(ge=1, le=3)] = 1
    keys: Keys = ()


class MouseDown(Struct, frozen=True, tag_field="type", tag="mouse_down", forbid_unknown_fields=True, omit_defaults=True):
    """Press the left button, and hold it."""

    at: Point | None = None


class MouseUp(Struct, frozen=True, tag_field="type", tag="mouse_up", forbid_unknown_fields=True, omit_defaults=True):
    """Release the left button."""

    at: Point | None = None


class Move(Struct, frozen=True, tag_field="type", tag="move", forbid_unknown_fields=True, omit_defaults=True):
    """Move the pointer."""

    at: Point


class Drag(Struct, frozen=True, tag_field="type", tag="drag", forbid_unknown_fields=True, omit_defaults=True):
    """Press at the first point, move along the others, and release at the last."""

    path: Annotated[tuple[Point, ...], Meta(min_length=2)]
    keys: Keys = ()


class Scroll(Struct, frozen=True, tag_field="type", tag="scroll", forbid_unknown_fields=True, omit_defaults=True):
    """Scroll by so many pixels: `dx` to the right, `dy` downwards, negative ones back."""

    dx: int = 0
    dy: int = 0
    at: Point | None = None
    keys: Keys = ()


class Type(Struct, frozen=True, tag_field="type", tag="type", forbid_unknown_fields=True, omit_defaults=True):
    """Type a text where the focus is."""

    text: str


class Keypress(Struct, frozen=True, tag_field="type", tag="keypress", forbid_unknown_fields=True, omit_defaults=True):
    """Press keys together, as in ['ctrl', 'a'] or ['Enter']; several times, or for so many seconds."""

    keys: Annotated[tuple[str, ...], Meta(min_length=1)]
    repeat: Annotated[int, Meta(ge=1, le=100)] = 1
    seconds: Annotated[float, Meta(ge=0, le=30)] = 0.0


class Delay(Struct, frozen=True, tag_field="type", tag="wait", forbid_unknown_fields=True, omit_defaults=True):
    """Wait."""

    seconds: Annotated[float, Meta(ge=0, le=30)] = 2.0


class Navigate(Struct, frozen=True, tag_field="type", tag="navigate", forbid_unknown_fields=True, omit_defaults=True):
    """Go to an address; or `back`, `forward`, `reload`."""

    url: str


ScreenAction = Screenshot | Click | MouseDown | MouseUp | Move | Drag | Scroll | Type | Keypress | Delay
Action = ScreenAction | Navigate
A = TypeVar("A", bound=Action)


def rescale(action: A, of: Screen, to: Screen) -> A:
    """Return the action with its points, given on a screen of one size, on a screen of another size."""
    if of == to:
        return action
    return replace(action, **{name: _place(value, of, to) for name, value in asdict(action).items()})


def _place(value: object, of: Screen, to: Screen) -> object:
    match value:
        case Point(x, y):
            return Point(min(x * to[0] // of[0], to[0] - 1), min(y * to[1] // of[1], to[1] - 1))
        case (Point(), *_):
            return tuple(_place(one, of, to) for one in value)
    return value
