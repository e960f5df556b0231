# Who gets which sample: row 0 a batch that DataParallel cuts, the other rows DDP's order in two epochs; from build/who_gets.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 330)
unset key
unset border
unset tics
unset grid
colors = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00"
ink(rank) = rank == 0 || rank == 2 ? 0xFFFFFF : 0x000000
rgb(rank) = int("0x" . word(colors, int(rank) + 1)[2:7])
stats ARG1 using 3 nooutput
ranks = int(STATS_max) + 1
set lmargin at screen 0.2
set rmargin at screen 0.985
set tmargin at screen 0.83
set bmargin at screen 0.03
set xrange [-0.6:14.6]
set yrange [2.75:-0.6]
set label 1 "DataParallel, one batch" at graph -0.015,first 0 right
set label 2 "DDP, first epoch" at graph -0.015,first 1.15 right
set label 3 "DDP, second epoch" at graph -0.015,first 2.3 right
do for [r = 0:ranks - 1] {
    set object r + 1 rectangle from screen 0.2 + 0.158 * r,screen 0.885 to screen 0.225 + 0.158 * r,screen 0.945 fs solid 1 noborder fc rgb word(colors, r + 1)
    set label 10 + r sprintf("device, rank %d", r) at screen 0.232 + 0.158 * r,screen 0.915 left font ",13"
}
plot ARG1 using 2:($1 * 1.15):(0.46):(0.44):(rgb($3)) with boxxyerror fs solid 1 noborder lc rgb variable, \
    ARG1 using 2:($1 * 1.15):(sprintf("%d", $4)) :(ink($3)) with labels font ",15" tc rgb variable
