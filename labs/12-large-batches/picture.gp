# The learning rate, step by step, by three schedules behind one warm-up: `build/dp_train --metrics`.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 430)
names = "constant cosine step"
colors = "#707070 #0072B2 #D55E00"
set lmargin at screen 0.115
set rmargin at screen 0.8
set tmargin at screen 0.95
set bmargin at screen 0.19
set xlabel "step"
set ylabel "learning rate"
set xrange [0:120]
set yrange [0:0.0022]
set key at screen 0.825,0.93 left top Left reverse samplen 2.2 spacing 1.35
plot for [i = 1:words(names)] ARG1 using (stringcolumn(3) eq word(names, i) ? $1 : NaN):2 with steps lw 3.5 - 0.5 * i lc rgb word(colors, i) title word(names, i)
