"""`evener completion`: prints what makes a shell complete commands and options. Made from the table of commands."""

from collections.abc import Iterator, Sequence

from evener.cli.parser import COMMANDS, Command

BASH = """\
_evener() {{
    local line="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" words=""
    case "$line" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
    [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _evener evener
"""
ZSH = "#compdef evener\nautoload -U +X bashcompinit && bashcompinit\n"


def run(shell: str) -> int:
    """Print the script of this shell."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](), end="")
    return 0


def words_of(commands: Sequence[Command] = COMMANDS, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield each command as its words, and the words that may follow: commands below it, or its options."""
    yield path, [command.name for command in commands]
    for command in commands:
        here = (*path, command.name)
        if command.commands:
            yield from words_of(command.commands, here)
        else:
            options = [name for argument in command.arguments for name in argument.names if name.startswith("-")]
            yield here, [*options, "--help"]


def _bash() -> str:
    longest = sorted(words_of(), key=lambda one: -len(one[0]))
    cases = [f'        {_quoted(path)}) words="{" ".join(words)}" ;;' for path, words in longest]
    return BASH.format(cases="\n".join(cases))


def _quoted(path: tuple[str, ...]) -> str:
    return f'"{" ".join(path)}"*' if path else '""'


def _zsh() -> str:
    return ZSH + _bash()


def _fish() -> str:
    lines = ["complete -c evener -f -n __fish_use_subcommand -a '" + " ".join(command.name for command in COMMANDS) + "'"]
    for path, words in words_of():
        if path:
            seen = " ".join(f"__fish_seen_subcommand_from {word};" for word in path).replace("; __", "; and __").rstrip(";")
            lines.append(f"complete -c evener -n '{seen}' -a '{' '.join(words)}'")
    return "\n".join(lines) + "\n"
