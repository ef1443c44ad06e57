"""What shells ask and are told when a word is to be completed: click's way, with scripts of our own.

Click's take ``=`` and what follows for words of the command (bash), put it in the place of the option (zsh),
or offer nothing (fish), which cuts words at commas, too. Here the shell sends the line as far as the cursor.
"""

from __future__ import annotations

import os
from typing import Final

from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

_LINE: Final = "COMP_LINE"

_BASH: Final = """\
%(complete_func)s() {
    local asked type value
    asked=$(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$asked"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""What stands after = is a word to bash."""

_ZSH: Final = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described asked
    local type key descr
    asked=("${(@f)$(env COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" \
%(complete_var)s=zsh_complete %(prog_name)s)}")
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    for type key descr in "${asked[@]}"; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain) [[ $descr == _ ]] && plain+=("$key") || described+=("$key:$descr") ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described
    (( $#plain )) && compadd -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"  # from fpath
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH: Final = """\
function %(complete_func)s
    set -l option (commandline -ct | string match -r -- '^--[^=]*=')
    set -l value (commandline -ct | string replace -r -- '^--[^=]*=' '')
    set -l line (commandline -cp | string collect)
    for each in (env COMP_LINE=$line %(complete_var)s=fish_complete %(prog_name)s)
        set -l parts (string split -m 1 , -- $each)
        set -l found $parts[2]
        switch $parts[1]
            case dir
                set found (__fish_complete_directories "$value" "")
            case file
                set found (__fish_complete_path "$value")
        end
        for one in $found
            printf '%%s\\n' "$option$one"
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
"""What is offered comes in the place of the whole word."""


class _OfTheLine(ShellComplete):
    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one at the cursor, and that; scripts of earlier releases ask click's way."""
        if (line := os.environ.get(_LINE)) is None:
            return super().get_completion_args()
        words = split_arg_string(f"{line}_")  # the cursor's word may be empty, or a quote be open
        return words[1:-1], words[-1][:-1]


class _Bash(_OfTheLine, BashComplete):
    source_template = _BASH


class _Zsh(_OfTheLine, ZshComplete):
    source_template = _ZSH


class _Fish(_OfTheLine, FishComplete):
    source_template = _FISH


SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def add_shells() -> None:
    """Have click answer in these ways."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)
