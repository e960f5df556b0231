# Backward and the all-reduces of its buckets on one device: lanes of `build/replay --gantt`.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 330)
unset key
unset border
unset tics
unset grid
set border 1
set grid xtics lc rgb color_grid lw 1 dt 1
set xtics out nomirror
set xlabel "time in the step [ms]"
set lmargin at screen 0.15
set rmargin at screen 0.97
set tmargin at screen 0.82
set bmargin at screen 0.27
set label 1 "compute" at graph -0.012,first 0 right
set label 2 "comm" at graph -0.012,first 1 right
row(lane) = lane eq "compute" ? 0 : (lane eq "comm" ? 1 : NaN)
shown = "forward backward all-reduce optimizer"
do for [i = 1:words(shown)] {
    set object i rectangle from screen 0.15 + 0.17 * (i - 1),screen 0.88 to screen 0.172 + 0.17 * (i - 1),screen 0.94 fs solid 1 noborder fc rgb phase_color(word(shown, i))
    set label 10 + i word(shown, i) at screen 0.179 + 0.17 * (i - 1),screen 0.91 left noenhanced
}
stats ARG1 using 4 nooutput
set yrange [1.6:-0.6]
set xrange [0:STATS_max * 1.01]
plot for [i = 1:words(shown)] ARG1 using (stringcolumn(2) eq word(shown, i) ? ($3 + $4) / 2 : NaN):(row(stringcolumn(1))):3:4:(row(stringcolumn(1)) - 0.36):(row(stringcolumn(1)) + 0.36) \
    with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb phase_color(word(shown, i))
