# A letter goes round, and a collective: from `build/hello --threads 6`, a line for each rank with the signatures that it saw (hello/hello.h).
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 470)
unset key
unset border
unset tics
unset grid
stats ARG1 using 2 nooutput
n = int(STATS_max)
signed(k) = sprintf("signed by %d", k)
set multiplot layout 1,2 margins 0.02,0.98,0.03,0.86 spacing 0.06
set xrange [-0.55:n - 0.45]
set yrange [n + 0.3:-1.0]
do for [i = 0:n - 1] {
    set arrow i + 1 from i,-0.1 to i,n + 0.1 nohead lc rgb color_grid lw 2 back
    set label i + 1 sprintf("rank %d", i) at i,-0.5 center font ",13"
}
set title "send and receive: a letter goes round" font title_font
# The first three hand-offs: how it goes on is asked.
hop(k) = k >= 1 && k <= 3
set label 40 "..." at 3.5,4 center font ",22" tc rgb color_ddp
plot ARG1 using (hop($1) ? $1 - 1 : NaN):1:(1):(0) with vectors lw 3 lc rgb color_ddp head filled size screen 0.012,18,50, \
    ARG1 using (hop($1) ? $1 - 0.53 : NaN):($1 - 0.27):(signed($2 - 1)) with labels font ",11" tc rgb color_ddp
unset label
do for [i = 0:n - 1] { set label i + 1 sprintf("rank %d", i) at i,-0.5 center font ",13" }
set title "all\\_reduce: all meet, each gets the sum" font title_font
set object 1 rectangle from -0.4,2.6 to n - 0.6,3.7 fs solid 1 border lc rgb color_dp fc rgb "#FBE9DF" front
set label 50 "sum" at (n - 1) / 2.0,3.15 center font ",15" tc rgb color_dp front
plot ARG1 using 1:(0.9):(0):(1.6) with vectors lw 3 lc rgb color_dp head filled size screen 0.012,18,50, \
    ARG1 using 1:(3.75):(0):(1.6) with vectors lw 3 lc rgb color_dp head filled size screen 0.012,18,50, \
    ARG1 using 1:(0.55):(sprintf("%d", $1)) with labels font ",14", \
    ARG1 using 1:(5.7):("sum") with labels font ",14"
