# Activations that a rank holds, in % of one device's, by ranks that share the layers, without and with rows of its own.
load "plots/style.gp"
eval open_png(ARG2, 1200, 400)
set lmargin at screen 0.115
set rmargin at screen 0.97
set tmargin at screen 0.95
set bmargin at screen 0.2
set logscale x 2
set xrange [0.95:17]
set yrange [0:105]
set xtics (1, 2, 4, 8, 16) scale 0
set format y "%g %%"
set xlabel "ranks that share the layers"
set ylabel "activations"
set key at graph 0.98,0.95 right top Left reverse samplen 2 spacing 1.35
plot ARG1 using 1:2 with linespoints lw 2 pt 7 ps 1.1 lc rgb "#D55E00" title "--tensor", \
    ARG1 using 1:3 with linespoints lw 2 pt 7 ps 1.1 lc rgb "#0072B2" title "--tensor --sequence-parallel", \
    100.0 / x with lines lw 1.2 dt 2 lc rgb "#666666" title "1/T"
