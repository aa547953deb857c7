# Whether a SEGMENT stands at the cursor. A name with a slash is a path, which fish completes.
function __shmsched_at_segment
    set -l words (commandline -opc)
    set -l verb "$words[2]"
    set -l left 1
    if contains -- "$verb" MANY_SEGMENTS
        set left 1000
    else if not contains -- "$verb" ONE_SEGMENT
        return 1
    end
    string match -q -- '*/*' (commandline -ct)
    and return 1
    set -e words[1..2]
    set -l value 0
    for word in $words
        if test $value = 1
            set value 0
        else if test "$word" = --
            return 1
        else if contains -- "$word" WITH_VALUE
            set value 1
        else if not string match -q -- '-*' "$word"
            set left (math $left - 1)
        end
    end
    test $value = 0 -a $left -gt 0
end
complete -c shmsched -n __shmsched_at_segment -f -a '(command shmsched list --names 2>/dev/null)'

# After the -- of run stands a command with its arguments, which fish completes as it does alone.
function __shmsched_at_command
    set -l words (commandline -opc)
    test "$words[2]" = run
    and contains -- -- $words
end
function __shmsched_command
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -e words[1..(contains -i -- -- $words)]
    # Without words, escape would read its input.
    set -q words[1]
    and set words (string escape -- $words)
    complete -C (string join ' ' -- $words "$token")
end
complete -c shmsched -n __shmsched_at_command -x -a '(__shmsched_command)'
