# Forward of a network whose units are gathered: lanes of `build/replay --gantt`, without prefetching and with one unit ahead.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 400)
unset key
unset border
unset tics
unset grid
set border 1
set grid xtics lc rgb color_grid lw 1 dt 1
set xtics out nomirror
set xlabel "time in the step [ms]"
set lmargin at screen 0.24
set rmargin at screen 0.97
set tmargin at screen 0.85
set bmargin at screen 0.23
set label 1 "none prefetched   compute" at graph -0.012,first 0 right
set label 2 "comm" at graph -0.012,first 1 right
set label 3 "1 prefetched   compute" at graph -0.012,first 2.6 right
set label 4 "comm" at graph -0.012,first 3.6 right
row(lane, ahead) = (lane eq "compute" ? 0 : (lane eq "comm" ? 1 : NaN)) + 2.6 * ahead
shown = "forward gather"
do for [i = 1:words(shown)] {
    set object i rectangle from screen 0.24 + 0.17 * (i - 1),screen 0.89 to screen 0.262 + 0.17 * (i - 1),screen 0.95 fs solid 1 noborder fc rgb phase_color(word(shown, i))
    set label 10 + i word(shown, i) at screen 0.269 + 0.17 * (i - 1),screen 0.92 left noenhanced
}
set yrange [4.2:-0.6]
set xrange [0:30]
plot for [i = 1:words(shown)] ARG1 using (stringcolumn(2) eq word(shown, i) ? ($3 + $4) / 2 : NaN):(row(stringcolumn(1), $5)):3:4:(row(stringcolumn(1), $5) - 0.36):(row(stringcolumn(1), $5) + 0.36) \
    with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb phase_color(word(shown, i))
