#compdef sonde
# Completion of sonde for zsh: eval "$(sonde completion zsh)"
_sonde() {
    local program=${words[1]/#\~/$HOME} how line word
    local -a lines entries plain space
    (( $+commands[$program] )) || [[ -x $program ]] || program=sonde
    lines=("${(@f)$($program completion --answer zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2> /dev/null)}")
    how=$lines[1]
    for line in "${(@)lines[2,-1]}"; do
        word=${line%%$'\t'*}
        plain+=("$word")
        entries+=("${word//:/\\:}${${line#*$'\t'}:+:${line#*$'\t'}}")
    done
    [[ $how == *open ]] && space=(-S '')
    (( $#plain )) && _describe -t words 'sonde' entries plain "${space[@]}"
    case $how in
        files*) _files ;;
        folders*) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _sonde ]]; then
    _sonde "$@" # loaded from a folder in $fpath
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _sonde sonde
fi
