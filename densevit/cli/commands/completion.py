"""Print a script that completes commands, options and recipes in a shell.

bash: `densevit completion bash > ~/.local/share/bash-completion/completions/densevit`; zsh: `densevit completion zsh >>
~/.zshrc`.
"""

import argparse
import importlib

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
NAMED = ("train", "check-data", "recipes")
"""Commands that take the name of a recipe."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh"])


def run(args: argparse.Namespace) -> int:
    from densevit.cli.main import COMMANDS
    from densevit.config.recipes import recipes

    cases = []
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"densevit.cli.commands.{command.module}").add_arguments(parser)
        words = sorted(option for action in parser._actions for option in action.option_strings)
        words += list(recipes()) if name in NAMED else []
        cases.append(f'    {name}) words="{" ".join(words)}" ;;')
    script = BASH.format(commands=" ".join(COMMANDS), cases="\n".join(cases))
    print((ZSH if args.shell == "zsh" else "") + script, end="")
    return 0
