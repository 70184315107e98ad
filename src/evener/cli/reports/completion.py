"""`evener completion`: prints a script that makes a shell complete commands and options. Made from the table of commands."""

from collections.abc import Iterator, Sequence

from evener.cli.parser import COMMANDS, Command

CASES = """\
    case "$line" in
{cases}
    esac
"""
BASH = """\
_evener() {{
    local line="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" offered=""
{cases}\
    COMPREPLY=($(compgen -W "$offered" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _evener evener
"""
# It is evaluated by a start-up file, or is a file on the `fpath` that is called to complete.
ZSH = """\
#compdef evener
_evener() {{
    local line="${{(j: :)words[2,CURRENT-1]}}" offered=""
{cases}\
    compadd -- ${{=offered}} || _files
}}
if [[ "${{funcstack[1]}}" == _evener ]]; then
    _evener "$@"
else
    (( ${{+functions[compdef]}} )) || {{ autoload -Uz compinit && compinit; }}
    compdef _evener evener
fi
"""
FISH = """\
function __evener_is
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end
function __evener_begins
    set -l words (commandline -opc)
    set -e words[1]
    string match -q -- "$argv *" "$words "
end
"""


def run(shell: str) -> int:
    """Print the script of this shell."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](), end="")
    return 0


def words_of(commands: Sequence[Command] = COMMANDS, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield each command as its words, and the words that may follow: commands below it, or its choices and options."""
    yield path, [command.name for command in commands]
    for command in commands:
        here = (*path, command.name)
        if command.commands:
            yield from words_of(command.commands, here)
        else:
            options = [name for argument in command.arguments for name in argument.names if name.startswith("-")]
            words = [argument for argument in command.arguments if not argument.names[0].startswith("-")]
            yield here, [*(one for word in words for one in word.settings.get("choices", ())), *options, "--help"]


def _is_group(path: tuple[str, ...]) -> bool:
    """True if another command follows these words, and nothing else can."""
    commands: Sequence[Command] = COMMANDS
    for word in path:
        commands = next(command.commands for command in commands if command.name == word)
    return bool(commands)


def _cases() -> str:
    """Return the cases of bash and zsh: what was typed so far, and the words that are offered after it."""
    lines = []
    for path, words in words_of():
        typed = " ".join(path)
        pattern = f'"{typed}"' if _is_group(path) else f'"{typed}"|"{typed} "*'
        lines.append(f'        {pattern}) offered="{" ".join(words)}" ;;')
    return CASES.format(cases="\n".join(lines))


def _bash() -> str:
    return BASH.format(cases=_cases())


def _zsh() -> str:
    return ZSH.format(cases=_cases())


def _fish() -> str:
    lines = []
    for path, words in words_of():
        typed = "".join(f" {word}" for word in path)
        when = f"-f -n '__evener_is{typed}'" if _is_group(path) else f"-n '__evener_begins{typed}'"
        lines.append(f"complete -c evener {when} -a '{' '.join(words)}'\n")
    return FISH + "".join(lines)
