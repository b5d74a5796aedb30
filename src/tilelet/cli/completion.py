"""Completion scripts for `tilelet`: generated, so that no Python starts on TAB."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilelet.cli.values import OneOf, folder, new_file
from tilelet.dataclasses import dataclass

if TYPE_CHECKING:
    from tilelet.cli.declaration import Command, Parser


@dataclass(frozen=True)
class CompletionValues:
    """Possible words at one position, and whether files or folders are possible."""

    words: tuple[str, ...] = ()
    files: bool = False
    folders: bool = False


@dataclass(frozen=True)
class Option:
    """An option: its spellings, description, and values (None for a flag)."""

    names: tuple[str, ...]
    about: str
    values: CompletionValues | None


@dataclass(frozen=True)
class Completed:
    """A command, its options, and the values of its arguments."""

    name: str
    about: str
    options: tuple[Option, ...]
    arguments: CompletionValues


def completion_script(shell: str, commands: Iterable[type[Command]]) -> str:
    """Return the self-contained completion script of a shell."""
    described = [_describe(command) for command in commands]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](described)


# Commands and their options


def _describe(command: type[Command]) -> Completed:
    parser = command.parser()
    options = [
        Option(tuple(a.option_strings), a.help or "", None if a.nargs == 0 else _values(parser, a))
        for a in parser.own_actions
        if a.option_strings
    ]
    places = [_values(parser, a) for a in parser.own_actions if not a.option_strings]
    words = tuple(dict.fromkeys(word for place in places for word in place.words))
    arguments = CompletionValues(words, files=any(place.files for place in places))
    return Completed(command.name, command.about(), tuple(options), arguments)


def _values(parser: Parser, action: argparse.Action) -> CompletionValues:
    if isinstance(action.type, OneOf):
        return CompletionValues(action.type.words)
    if action.type is folder:
        return CompletionValues(folders=True)
    if action.type is new_file:
        return CompletionValues(files=True)
    words = parser.words.get(action.dest)
    return CompletionValues(tuple(words()) if words else (), files=action.dest in _MAY_BE_FILES)


# Machines are names or machine files; programs are names or scripts.
_MAY_BE_FILES = ("platform", "script", "a", "b", "directory")


# bash

_BASH = """\
# Completes tilelet in bash. Written by `tilelet completion bash`.
_tilelet() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local words="" files="" i
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        words="@COMMANDS@"
    else
        case "${COMP_WORDS[1]} $previous" in
@VALUES@
        *)
            case "${COMP_WORDS[1]} $current" in
@OPTIONS@
@ARGUMENTS@
            esac
            ;;
        esac
    fi
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -W "$words" -- "$current")
    if [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen "$files" -- "$current")
    fi
}
complete -F _tilelet tilelet
"""


def _bash(commands: Sequence[Completed]) -> str:
    values: list[str] = []
    options: list[str] = []
    arguments: list[str] = []
    for command in commands:
        for option in command.options:
            if option.values is not None:
                cases = "|".join(f'"{command.name} {name}"' for name in option.names)
                values.append(f"        {cases}) {_bash_values(option.values)} ;;")
        names = " ".join(name for option in command.options for name in option.names)
        options.append(f'            "{command.name} -"*) words="{names}" ;;')
        if command.arguments != CompletionValues():
            cases = f'"{command.name} "*'
            arguments.append(f"            {cases}) {_bash_values(command.arguments)} ;;")
    parts = {
        "COMMANDS": " ".join(command.name for command in commands),
        "VALUES": "\n".join(values),
        "OPTIONS": "\n".join(options),
        "ARGUMENTS": "\n".join(arguments),
    }
    return _fill_in(_BASH, parts)


def _bash_values(values: CompletionValues) -> str:
    kind = "-f" if values.files else "-d" if values.folders else ""
    return f'words="{" ".join(values.words)}" files="{kind}"'


def _fill_in(text: str, parts: dict[str, str]) -> str:
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text.rstrip("\n")


# zsh

_ZSH = """\
#compdef tilelet
# Completes tilelet in zsh. Written by `tilelet completion zsh`.
_tilelet() {
    local -a commands
    local state line
    commands=(
@COMMANDS@
    )
    _arguments -C '1:command:->command' '*::argument:->argument'
    case $state in
    command) _describe command commands ;;
    argument)
        case $words[1] in
@CASES@
        esac
        ;;
    esac
}
if [[ $funcstack[1] == _tilelet ]]; then _tilelet "$@"; else compdef _tilelet tilelet; fi
"""


def _zsh(commands: Sequence[Completed]) -> str:
    cases: list[str] = []
    for command in commands:
        specs = [spec for option in command.options for spec in _zsh_option(option)]
        if command.arguments != CompletionValues():
            specs.append(f"'*:argument:{_zsh_values(command.arguments)}'")
        body = " \\\n            ".join(["_arguments", *specs])
        cases.append(f"        {command.name}) {body} ;;")
    described = [f"        '{c.name}:{_zsh_text(c.about)}'" for c in commands]
    return _fill_in(_ZSH, {"COMMANDS": "\n".join(described), "CASES": "\n".join(cases)})


def _zsh_option(option: Option) -> list[str]:
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    tail = f":value:{_zsh_values(option.values)}" if option.values is not None else ""
    specs: list[str] = []
    for name in option.names:
        joined = "=" if tail and name.startswith("--") else ""
        specs.append(f"'{others}{name}{joined}[{_zsh_text(option.about)}]{tail}'")
    return specs


def _zsh_values(values: CompletionValues) -> str:
    words = " ".join(word.replace(":", r"\:") for word in values.words)
    if values.files and words:
        return f'{{_alternative "words:word:({words})" "files:file:_files"}}'
    if values.files:
        return "_files"
    return "_files -/" if values.folders else f"({words})"


def _zsh_text(text: str) -> str:
    for char in "\\[]:":
        text = text.replace(char, f"\\{char}")
    return text.replace("'", "'\\''").replace("`", "\\`")


# fish


def _fish(commands: Sequence[Completed]) -> str:
    lines = [
        "# Completes tilelet in fish. Written by `tilelet completion fish`.",
        "complete -c tilelet -f",
    ]
    for c in commands:
        about = _fish_text(c.about)
        lines.append(f"complete -c tilelet -n __fish_use_subcommand -a {c.name} -d {about}")
    for c in commands:
        here = f"complete -c tilelet -n '__fish_seen_subcommand_from {c.name}'"
        if c.arguments != CompletionValues():
            lines.append(f"{here} {_fish_values(c.arguments)}")
        for option in c.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = f" -r {_fish_values(option.values)}" if option.values is not None else ""
            lines.append(f"{here} {names}{value} -d {_fish_text(option.about)}")
    return "\n".join(lines)


def _fish_values(values: CompletionValues) -> str:
    words = f"-a {_fish_text(' '.join(values.words))}" if values.words else ""
    kind = "-F" if values.files else "-a '(__fish_complete_directories)'" if values.folders else ""
    return " ".join(part for part in (kind, words) if part) or "-f"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
