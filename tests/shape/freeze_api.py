"""Writes public_api.txt, the list of names we promise to keep: `python tests/shape/freeze_api.py`.

Reads `__all__` from the source and imports nothing, so it works on a tree that does not import.
"""

import ast
from pathlib import Path

PACKAGES = (
    *("evener", "evener.encodings", "evener.harness", "evener.local", "evener.model", "evener.store"),
    *("evener.testing", "evener.tools", "evener.transcript", "evener.wire"),
)
FROZEN = Path(__file__).with_name("public_api.txt")
SRC = Path(__file__).resolve().parents[2] / "src"


def exports(tree: ast.Module) -> list[str] | None:
    """The names of a literal `__all__`; None when there is none or it is not literal."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                return literal(value)
    return None


def literal(value: ast.expr) -> list[str] | None:
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            names = [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            return names if len(names) == len(elements) else None
    return None


def public_api() -> list[str]:
    """`package.name` for each exported name; a package that does not exist yet has none."""
    lines = []
    for package in PACKAGES:
        path = SRC.joinpath(*package.split("."), "__init__.py")
        if path.exists():
            names = exports(ast.parse(path.read_text(encoding="utf-8"))) or []
            lines += [f"{package}.{name}" for name in sorted(names)]
    return lines


if __name__ == "__main__":
    FROZEN.write_text("".join(f"{line}\n" for line in public_api()), encoding="utf-8")
    print(f"{FROZEN.name}: {len(public_api())} names")
