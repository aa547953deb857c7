# Where a SEGMENT stands: the names of those that exist, else files.
_shmsched_segments() {
    local -a names
    names=(${(f)"$(command shmsched list --names 2>/dev/null)"})
    compadd "$@" -a names || _default "$@"
}
