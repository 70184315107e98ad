"""Strict checks of a skill against the specification of Agent Skills, for its author. The loader is lenient."""

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from evener.errors import UsageError
from evener.skills.skill import front_matter, skill_file, split_text

FIELDS = frozenset({"name", "description", "license", "allowed-tools", "metadata", "compatibility"})
MOST = {"name": 64, "description": 1_024, "compatibility": 500}


def validate_skill(folder: Path) -> tuple[str, ...]:
    """Return what is wrong with a skill, in sentences; nothing if it is right."""
    if not folder.is_dir():
        return (f"{folder} is not a folder.",)
    try:
        fields, _ = front_matter(folder, lenient=False)
    except UsageError as error:
        return (str(error),)
    return (*_find_odd_yaml(folder), *_find_odd_fields(fields), *_find_odd_name(fields.get("name"), folder))


def _find_odd_fields(fields: Mapping[str, object]) -> Iterator[str]:
    unknown = sorted(set(fields) - FIELDS)
    if unknown:
        yield f"There are unknown fields: {', '.join(unknown)}. Known are {', '.join(sorted(FIELDS))}."
    for field in ("description", "compatibility"):
        value = fields.get(field)
        if value is None and field == "compatibility":
            continue
        if not isinstance(value, str) or (field == "description" and not value.strip()):
            yield f"The field {field!r} must be a text that is not empty."
        elif len(value) > MOST[field]:
            yield f"The field {field!r} has {len(value)} characters; at most {MOST[field]} are allowed."


def _find_odd_name(value: object, folder: Path) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip():
        yield "The field 'name' must be a text that is not empty."
        return
    name = unicodedata.normalize("NFKC", value.strip())
    if len(name) > MOST["name"]:
        yield f"The name has {len(name)} characters; at most {MOST['name']} are allowed."
    if name != name.lower() or not all(letter.isalnum() or letter == "-" for letter in name):
        yield f"The name {name!r} may have lowercase letters, digits and hyphens only."
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"The name {name!r} may have single hyphens between words only."
    if unicodedata.normalize("NFKC", folder.name) != name:
        yield f"The folder {folder.name!r} must be named like the skill, {name!r}."


def _find_odd_yaml(folder: Path) -> Iterator[str]:
    """Give what YAML allows and the specification's validator does not: repeated keys, tags, anchors, values in brackets."""
    import yaml

    file = skill_file(folder)
    assert file is not None
    text = split_text(file.read_text(encoding="utf-8"), file)[0]
    odd = (yaml.TagToken, yaml.AnchorToken, yaml.AliasToken, yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)
    if any(isinstance(token, odd) for token in yaml.scan(text, Loader=yaml.BaseLoader)):
        yield "A tag, an anchor or a value in brackets is not allowed: write a list or a mapping on lines of its own."
        return
    nodes = [yaml.compose(text, Loader=yaml.BaseLoader)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            names = [str(key.value) for key, _ in node.value]
            if len(names) != len(set(names)):
                yield "A field is written twice."
            nodes += (one for _, one in node.value)
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value
