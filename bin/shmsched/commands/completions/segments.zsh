# Where a SEGMENT stands: the names of those that exist, else files.
_shmsched_segments() {
    local -a names
    names=(${(f)"$(command shmsched list --names 2>/dev/null)"})
    compadd "$@" -a names || _default "$@"
}

# After the -- of run stands a command with its arguments, which zsh completes as it does alone.
_shmsched_at_command() {
    [[ $words[2] == run ]] && ((${words[(i)--]} < CURRENT))
}
_shmsched_command() {
    local -i at=${words[(i)--]}
    shift $at words
    ((CURRENT -= at))
    _normal
}
