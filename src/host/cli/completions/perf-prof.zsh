#compdef perf-prof
# Completions of perf-prof for zsh. Words come from `perf-prof complete`, which knows the events of this kernel.

_perf-prof() {
    local -a lines complete complete_shown open open_shown
    local line value shown
    lines=("${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in $lines; do
        value=${line%%$'\t'*}
        shown=${line/$'\t'/  -- }
        # More follows after these characters, so no space is added.
        if [[ $value == *[:=/,] ]]; then
            open+=("$value") open_shown+=("$shown")
        else
            complete+=("$value") complete_shown+=("$shown")
        fi
    done
    if (( ! $#lines || ! ($#open + $#complete) )); then
        _files
        return
    fi
    compadd -l -d complete_shown -a complete
    compadd -l -S '' -d open_shown -a open
}

# As a file of fpath, this is the body of the function; otherwise the function is registered.
if [[ $funcstack[1] == _perf-prof ]]; then
    _perf-prof "$@"
else
    compdef _perf-prof perf-prof
fi
