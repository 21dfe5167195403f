"""`completion`: a script that completes commands, options and recipes in a shell."""

from typing import Literal

BASH = """_densevit() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands} --help --version" -- "$cur"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case "$cur" in -*) ;; *) COMPREPLY+=($(compgen -f -- "$cur")) ;; esac
}}
complete -o filenames -F _densevit densevit
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
NAMED = ("train", "check-data", "list")
"""Commands that take the name of a recipe."""


def completion(shell: Literal["bash", "zsh"], /) -> str:
    """Print a script that completes commands, options and recipes in bash or zsh.

    bash: `densevit completion bash > ~/.local/share/bash-completion/completions/densevit`; zsh: `densevit completion
    zsh >> ~/.zshrc`.

    Args:
        shell: the shell.
    """
    from densevit.cli.commands import COMMANDS
    from densevit.cli.parser import find_function, make_parser
    from densevit.config.parser import recipes

    cases = []
    for name, command in COMMANDS.items():
        parser = make_parser(name, find_function(command.function))
        words = sorted(option for action in parser._actions for option in action.option_strings)
        words += list(recipes()) if name in NAMED else []
        words += [
            str(choice) for action in parser._actions if not action.option_strings for choice in action.choices or ()
        ]
        cases.append(f'    {name}) words="{" ".join(words)}" ;;')
    script = BASH.format(commands=" ".join(COMMANDS), cases="\n".join(cases))
    return ((ZSH if shell == "zsh" else "") + script).rstrip("\n")
