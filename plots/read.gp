# The CSV file `path` as data for `plot`, in the data block named `block`. Set these, and load this:
#     source    the program that writes the file, named in the error if it is missing or empty; "": it may be missing
#     comma     replaces a comma within quotes, at which gnuplot would cut the text: " ", or "‚" (U+201A) if the text is shown
#     keep(i)   whether line i, in lines[i], goes into the data block; line_count is their number
# gnuplot reads the file byte by byte, since any program that it starts runs in a shell, to which a path must not be passed. A file
# that cannot be read has no lines, after gnuplot's own warning.

# Each assignment takes gnuplot a microsecond, so that a byte has one; and one pass suffices for files of up to 4096 lines.
array lines[4096]
set_line(i)     = (lines[i] = line_text, 0)
end_line(dummy) = (line_count = line_count + 1, line_count <= |lines| ? set_line(line_count) : 0, line_text = "", 0)
quote(dummy)    = (in_quotes = !in_quotes, 0)
add_byte(byte)  = (line_text = line_text . (byte == 44 && in_quotes ? comma : sprintf("%c", byte)), byte == 34 ? quote(0) : 0)
take_byte(byte) = byte == 10 ? end_line(0) : add_byte(byte)

# Predicates of lines, for keep and later use.
begins(text, start) = strstrt(text, start) == 1
field(text, i)      = i > 1 ? field(text[strstrt(text . ",", ",") + 1:*], i - 1) : text[1:strstrt(text . ",", ",") - 1]
any_row(start)      = (sum [i = 1:line_count] (begins(lines[i], start) ? 1 : 0)) > 0

unset datafile columnheaders
set table "/dev/null"
line_count = 0; line_text = ""; in_quotes = 0
plot [0:1] "+" using 1:1 with lines, as_file(path) binary format="%uchar" using (take_byte($1)) with lines
if (line_count > |lines|) {
    array lines[line_count]
    line_count = 0; line_text = ""; in_quotes = 0
    replot
}
unset table
set datafile columnheaders
if (line_count == 0 && source ne "") {
    printerr "there is no " . path . "; run: " . source
    exit status 1
}

eval sprintf("set print $%s", block)
do for [i = 1:line_count] { if (keep(i)) { print lines[i] } }
unset print
