# State of deep on each rank with ZeRO-1, by ranks: parameters, gradients, and what is shared out.
load "plots/style.gp"
eval open_png(ARG2, 1200, 420)
MiB = 2.0 ** 20
set lmargin at screen 0.085
set rmargin at screen 0.97
set tmargin at screen 0.95
set bmargin at screen 0.2
set xrange [0.4:16.6]
set yrange [0:300]
set xtics 1 scale 0
set xlabel "ranks"
set ylabel "MiB on each rank"
set key at graph 0.98,0.99 right top Left reverse samplen 1.2 spacing 1.35
plot ARG1 using 1:(($2 + $3) / MiB):($1 - 0.36):($1 + 0.36):(($2 + $3) / MiB):(($2 + $3 + $4) / MiB) with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb "#D55E00" title "Adam's moments: a rank's part", \
    ARG1 using 1:($2 / MiB):($1 - 0.36):($1 + 0.36):($2 / MiB):(($2 + $3) / MiB) with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb "#56B4E9" title "gradients", \
    ARG1 using 1:(0):($1 - 0.36):($1 + 0.36):(0):($2 / MiB) with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb "#999999" title "parameters"
