# Completions of perf-prof for bash. Words come from `perf-prof complete`, which knows the events of this kernel.

_perf_prof() {
    # Readline divides words at : and =, as in sched:sched_switch. They are joined again here.
    local line=${COMP_LINE:0:COMP_POINT} words=() spaces word i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        spaces=${line%%[![:space:]]*}
        line=${line#"$spaces"}
        word=${COMP_WORDS[i]}
        # The word at the cursor ends there.
        ((i == COMP_CWORD)) && word=$line
        line=${line#"$word"}
        if ((i > 0)) && [[ -z $spaces ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
    done

    # Readline replaces only the part after the last : or =, but the whole word after a quotation mark.
    local last=$((${#words[@]} - 1)) kept=
    word=${words[last]}
    if [[ $word == [\'\"]* ]]; then
        words[last]=${word:1}
    elif [[ $word == *[:=]* ]]; then
        kept=${word%"${word##*[:=]}"}
        # A : or = divides words only if COMP_WORDBREAKS has it.
        [[ $COMP_WORDBREAKS == *"${kept: -1}"* ]] || kept=
    fi

    local candidate
    COMPREPLY=()
    while IFS= read -r candidate; do
        candidate=${candidate%%$'\t'*}
        COMPREPLY+=("${candidate#"$kept"}")
    done < <("${words[0]}" complete -- "${words[@]}" 2>/dev/null)
    # More follows after these characters, so readline adds no space.
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[:=/,] ]] && type compopt >/dev/null 2>&1; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F _perf_prof perf-prof
