# Options of @PROGRAM@, as it lists them itself.
_lockstep_@PROGRAM@() {
    local options
    options=$("$1" --help 2>/dev/null | sed -nE 's/^  (-[a-z], )?--(\[no-\])?([a-z0-9-]+).*/--\3/p; s/^  --\[no-\]([a-z0-9-]+).*/--no-\1/p')
    case $2 in
    -*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$2") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    esac
}
complete -o filenames -F _lockstep_@PROGRAM@ @PROGRAM@
