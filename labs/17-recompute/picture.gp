# Activations of deep by blocks of a segment: what is kept between passes, and the memory in which segments take turns.
load "plots/style.gp"
eval open_png(ARG2, 1200, 440)
MiB = 2.0 ** 20
set lmargin at screen 0.085
set rmargin at screen 0.97
set tmargin at screen 0.95
set bmargin at screen 0.19
set xrange [0.4:17.6]
set yrange [0:360]
set xtics 1 scale 0
set xlabel "blocks of a segment"
set ylabel "MiB"
set key at graph 0.5,0.99 center top Left reverse samplen 1.2 spacing 1.35
plot ARG1 using 1:(($2 + $3) / 2 / MiB):($1 - 0.36):($1 + 0.36):($2 / MiB):(($2 + $3) / MiB) with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb "#56B4E9" title "activations inside one segment", \
    ARG1 using 1:($2 / 2 / MiB):($1 - 0.36):($1 + 0.36):(0):($2 / MiB) with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb "#D55E00" title "inputs that are kept"
