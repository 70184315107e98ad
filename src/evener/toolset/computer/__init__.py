"""Tools for a screen: a computer or a browser that a model sees in screenshots, and uses with pointer and keys."""

from evener.encodings.native.actions import (
    Action,
    Click,
    Delay,
    Drag,
    Keypress,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    Point,
    Screen,
    Screenshot,
    Scroll,
    Type,
)
from evener.toolset.computer.tools import Computer, Shot, computer_tools

__all__ = [
    "Action",
    "Click",
    "Computer",
    "Delay",
    "Drag",
    "Keypress",
    "MouseDown",
    "MouseUp",
    "Move",
    "Navigate",
    "Point",
    "Screen",
    "Screenshot",
    "Scroll",
    "Shot",
    "Type",
    "computer_tools",
]
