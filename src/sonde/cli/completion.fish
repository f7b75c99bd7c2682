# Completion of sonde for fish: sonde completion fish > ~/.config/fish/completions/sonde.fish
function __sonde_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    type -q -- $program; or set program sonde
    set -l lines ($program completion --answer fish $words[2..-1] "$current" 2>/dev/null)
    set -q lines[1]; or return
    test (count $lines) -gt 1; and printf '%s\n' $lines[2..-1]
    switch $lines[1]
        case 'files*'
            __fish_complete_path "$current"
        case 'folders*'
            __fish_complete_directories "$current"
    end
end
complete -c sonde -f -a '(__sonde_complete)'
