# The collectives of four ranks by number: of rank 2 other ones from one number on.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1000, 330)
unset key
unset border
unset grid
set ytics ("rank 0" 0, "rank 1" 1, "rank 2" 2, "rank 3" 3) scale 0
set xtics 1 scale 0
set format x "#%g"
set yrange [3.6:-0.6]
set xrange [112.4:120.6]
set tmargin at screen 0.86
set lmargin at screen 0.08
set rmargin at screen 0.98
pale(state) = state eq "enqueued" ? 0x90000000 : 0
colour(what) = what eq "B" ? 0xBBBBBB : what eq "0" ? 0x56B4E9 : what eq "1" ? 0x009E73 : 0xD55E00
at(n) = n == 1 ? 0.08 : n == 2 ? 0.23 : n == 3 ? 0.47 : 0.60
entry(n, c, text) = sprintf("set object %d rectangle from screen %g,screen 0.90 to screen %g,screen 0.97 fs solid 1 noborder fc rgb '%s'; set label %d '%s' at screen %g,screen 0.935 left", n, at(n), at(n) + 0.025, c, n, text, at(n) + 0.032)
eval entry(1, "#BBBBBB", "broadcast")
eval entry(2, "#56B4E9", "all-reduce, bucket 0")
eval entry(3, "#009E73", "bucket 1")
eval entry(4, "#D55E00", "bucket 2")
set label 5 "? waits in it; pale: behind it" at screen 0.73,screen 0.935 left
plot ARG1 using ($2 < 113 ? NaN : $2):1:($2 - 0.46):($2 + 0.46):($1 - 0.4):($1 + 0.4):(colour(stringcolumn(3)) + pale(stringcolumn(4))) with boxxyerror fs solid 1 noborder lc rgb variable, \
    ARG1 using 2:1:(stringcolumn(4) eq "started" ? "?" : "") with labels font ",16" tc rgb "white"
