#compdef agentbus
# Completion of agentbus for zsh: source <(agentbus completion zsh), behind compinit;
# or write it to a file _agentbus in a folder of $fpath.
_agentbus() {
    local line
    local -a lines found
    lines=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${lines[1]} == ":files"* ]]; then
        _files
        return
    fi
    for line in "${lines[@]}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    (( ${#found} )) && _describe agentbus found
}
if [[ ${funcstack[1]} == _agentbus ]]; then
    _agentbus "$@"
else
    compdef _agentbus agentbus
fi
