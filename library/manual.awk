# Writes a manual page, section 1, from a program's --help.
# usage: PROGRAM --help | awk -v name=PROGRAM -v version=V -f library/manual.awk
function plain(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); if (text ~ /^[.\x27]/) text = "\\\\\\&" text; return text }
NR == 1 { usage = $0; sub(/^Usage: [^ ]*/, name, usage); next }
NR == 2 {
    printf ".TH %s 1 \"\" \"lockstep %s\" \"lockstep\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n%s\n.fi\n.SH DESCRIPTION\n.nf\n", toupper(name), version, name, plain($0), plain(usage)
}
{ print plain($0) }
END { print ".fi" }
