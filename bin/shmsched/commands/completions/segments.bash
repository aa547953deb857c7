# What follows the -- of run, from word $1 on: a command and its arguments, which bash-completion knows how to complete.
# Without it, files are left to bash.
_shmsched_command() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif (($1 == COMP_CWORD)) && [[ $2 != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$2")
    fi
}

# Where a SEGMENT stands: the names of those that exist. A name with a slash is a path, which bash completes.
_shmsched_segments() {
    local at=2 left=1 verb=${COMP_WORDS[1]-} word name quoted
    COMPREPLY=()
    case " MANY_SEGMENTS " in *" $verb "*) left=1000 ;; esac
    case " MANY_SEGMENTS ONE_SEGMENT " in *" $verb "*) ;; *) left=0 ;; esac
    while ((at < COMP_CWORD)); do
        word=${COMP_WORDS[at++]}
        if [[ $word == -- && $verb == run ]]; then
            _shmsched_command "$at" "$2"
            return
        elif [[ $word == -- ]]; then
            left=0
        elif [[ $word == '=' ]]; then
            # --option=value is three words.
            ((at++))
        elif [[ $word != -* ]]; then
            ((left--))
        elif [[ " WITH_VALUE " == *" $word "* && ${COMP_WORDS[at]} != '=' ]]; then
            ((at++))
        fi
    done
    if ((at == COMP_CWORD && left > 0)) && [[ $2 != -* && ${COMP_WORDS[at]} != '=' ]]; then
        while IFS= read -r name; do
            printf -v quoted %q "$name"
            if [[ $name == "$2"* || $quoted == "$2"* ]]; then COMPREPLY+=("$quoted"); fi
        done < <(command shmsched list --names 2>/dev/null)
    fi
    # No name, or no place for one.
    ((${#COMPREPLY[@]})) || _shmsched "$@"
}
complete -F _shmsched_segments -o bashdefault -o default shmsched
