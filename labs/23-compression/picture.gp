# Bytes that a rank receives with top-k, in % of a ring's all-reduce, by ranks, for three fractions of the elements.
load "plots/style.gp"
eval open_png(ARG2, 1200, 420)
set lmargin at screen 0.115
set rmargin at screen 0.97
set tmargin at screen 0.95
set bmargin at screen 0.2
set logscale x 2
set logscale y 10
set xrange [1.8:72]
set yrange [0.03:1500]
set xtics (2, 4, 8, 16, 32, 64) scale 0
set format y "%g %%"
set xlabel "ranks"
set ylabel "bytes received"
set key at graph 0.98,0.05 right bottom Left reverse samplen 2 spacing 1.35
set arrow from 1.8,100 to 72,100 nohead lc rgb "#666666" lw 1.2 dt 2
set label "all-reduce of all elements" at 2,140 left tc rgb "#666666"
plot ARG1 using 1:4 with linespoints lw 2 pt 7 ps 1.1 lc rgb "#D55E00" title "10 % of the elements", \
    ARG1 using 1:3 with linespoints lw 2 pt 7 ps 1.1 lc rgb "#0072B2" title "1 %", \
    ARG1 using 1:2 with linespoints lw 2 pt 7 ps 1.1 lc rgb "#009E73" title "0.1 %"
