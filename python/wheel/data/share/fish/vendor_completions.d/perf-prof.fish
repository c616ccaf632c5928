# Completions of perf-prof for fish. Words come from `perf-prof complete`, which knows the events of this kernel.

function __perf_prof_complete
    set --local words (commandline --tokenize --cut-at-cursor --current-process) (commandline --current-token --cut-at-cursor)
    command $words[1] complete -- $words 2>/dev/null
end

complete --command perf-prof --no-files --keep-order --arguments '(__perf_prof_complete)'
