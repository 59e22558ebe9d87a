# Completion of agentbus for fish: agentbus completion fish | source
function __agentbus_complete
    set -l typed (commandline -opc)
    set -l found ($typed[1] complete -- $typed[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null)
    if string match -q ':files*' -- $found[1]
        __fish_complete_path (commandline -ct)
    else if set -q found[1]
        printf '%s\n' $found
    end
end
complete -c agentbus -f -a '(__agentbus_complete)'
