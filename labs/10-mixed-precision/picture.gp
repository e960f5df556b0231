# The loss scale, step by step, and the steps that were skipped: `build/dp_train --metrics`.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 430)
set lmargin at screen 0.1
set rmargin at screen 0.975
set tmargin at screen 0.88
set bmargin at screen 0.19
set logscale y 10
set format y "10^{%T}"
set ylabel "loss scale"
set xlabel "step"
set yrange [5e5:3e8]
set xrange [-1:60]
set key at screen 0.975,0.985 right top horizontal samplen 2 spacing 1.2
plot ARG1 using 1:2 with steps lw 2.5 lc rgb color_ddp title "loss scale", \
    ARG1 using ($3 == 1 ? $1 : NaN):2 with points pt 7 ps 1.3 lc rgb color_dp title "this step is skipped", \
    ARG1 using ($3 == 0 ? $1 : NaN):2 with points pt 6 ps 0.9 lw 1.5 lc rgb color_ddp title "this step is taken"
