# Completion of sonde for bash: eval "$(sonde completion bash)"
_sonde() {
    local program=${COMP_WORDS[0]/#\~/$HOME} how current=$2 line
    type -P -- "$program" > /dev/null || program=sonde
    COMPREPLY=()
    {
        IFS= read -r how || return 0
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done
    } < <("$program" completion --answer bash "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2> /dev/null)
    case $how in
        *open) compopt -o nospace 2> /dev/null ;;
    esac
    case $how in
        files*)
            compopt -o filenames 2> /dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
            ;;
        folders*)
            compopt -o filenames 2> /dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$current")
            ;;
    esac
}
complete -F _sonde sonde
