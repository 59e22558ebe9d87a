# Completion of agentbus for bash: source <(agentbus completion bash)
_agentbus() {
    local out line
    out=$("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return 0
    COMPREPLY=()
    [[ -n $out ]] || return 0
    if [[ $out == ":files"* ]]; then
        compopt -o default 2>/dev/null
        return 0
    fi
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done <<<"$out"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _agentbus agentbus
