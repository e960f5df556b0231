# A dot for each row of a table: the deviation of ours from the reference, in %. tables_machine.gp and tables_published.gp
# set
#     rows     the CSV's lines, header first, as data for `plot`: columns table, mode, n and deviation
#     file     path and name of the picture without its ending
#     heading, subtitle
# and load this. Dots beyond 100 % are hollow, at the edge; the figures are at the right.

set encoding utf8
percent(share) = 100 * share
edge = 30.0 # the axis ends here, or further out if rows need it, at most at 100 %
count = 0
widen(x) = (edge = abs(x) > edge ? (abs(x) > 100 ? 100.0 : 10 * ceil(abs(x) / 10)) : edge, count = count + 1, 0)
set table $ignored
plot rows using (widen(percent(column("deviation")))):(0) with table
unset table
if (count == 0) { exit status 0 }

quantity = "" # of the row above: printed once
label(text, mode, n) = (named = text eq quantity ? "" : text[strstrt(text, " ") + 1:] . ":  ", quantity = text, \
    named . mode . "‚ N = " . n)
row(i) = -int(i) # the first row is at the top
kind_of(mode) = strstrt(mode, "DDP") ? 2 : strstrt(mode, "DP") ? 1 : 3
array hues[3] = [int("0x" . color_dp[2:]), int("0x" . color_ddp[2:]), int("0x" . color_ideal[2:])]
array forms[3] = [7, 5, 9] # filled; one less is the same, hollow
within(x) = x > edge ? edge : x < -edge ? -edge : x
height = 200 + 30 * count

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, height) } else { eval open_svg(file, 1600, height) }
    set lmargin at screen 0.44
    set rmargin at screen 0.92
    set tmargin at screen 1 - 115.0 / height
    set bmargin at screen 80.0 / height
    set label 2 heading at screen 0.5,1 - 30.0 / height center font title_font noenhanced
    set label 1 subtitle at screen 0.5,1 - 62.0 / height center noenhanced
    set xlabel "ours / reference - 1 [%], and the band of ±10 %; an open mark lies beyond the axis" noenhanced
    set xrange [-edge:edge]
    set yrange [-count + 0.4:0.6]
    set ytics scale 0 noenhanced
    set grid xtics ytics
    set object 1 rectangle from -10,graph 0 to 10,graph 1 fillcolor rgb "#E3F1EA" fillstyle solid 1 noborder behind
    set arrow 1 from 0,graph 0 to 0,graph 1 nohead lc rgb color_ideal lw 2 back
    set key at screen 0.44,1 - 95.0 / height left center horizontal samplen 1 noenhanced
    quantity = ""
    plot rows using (0):(row(column(0))):ytic(label(stringcolumn("table"), stringcolumn("mode"), stringcolumn("n"))) \
             with points pt 0 lc rgb "#FFFFFF" notitle, \
         rows using (within(percent(column("deviation")))):(row(column(0))): \
             (forms[kind_of(stringcolumn("mode"))] - (abs(percent(column("deviation"))) > edge)): \
             (hues[kind_of(stringcolumn("mode"))]) with points pt variable lc rgb variable ps 1.2 lw 2 notitle, \
         for [k = 1:2] keyentry with points pt forms[k] ps 1.2 lc rgb hues[k] title word("DP DDP", k), \
         rows using (edge):(row(column(0))):(sprintf("%+.1f %%", percent(column("deviation")))) \
             with labels left offset 1,0 noenhanced notitle
    unset output
}
print file . ".png"
print file . ".svg"
