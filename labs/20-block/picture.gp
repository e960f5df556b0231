# Losses of a small GPT on sums, right and with three mistakes: the one that sees the answer looks best.
load "plots/style.gp"
eval open_png(ARG2, 1200, 420)
set lmargin at screen 0.085
set rmargin at screen 0.97
set tmargin at screen 0.95
set bmargin at screen 0.2
set xrange [0:1000]
set yrange [0:2.6]
set xtics 200
set ytics 0.5
set xlabel "step"
set ylabel "training loss"
set key at graph 0.98,0.57 right top Left reverse samplen 2 spacing 1.35
of(run) = sprintf("<awk -F, '$3 == \"%s\"' %s", run, ARG1)
plot of("dp_train") using 1:2 with lines lw 3 lc rgb "#000000" title "right", \
    of("dp_train_head_lost") using 1:2 with lines lw 2 lc rgb "#0072B2" title "the head's gradient lost", \
    of("dp_train_all_channels") using 1:2 with lines lw 2 lc rgb "#009E73" title "scores divided by the root of C", \
    of("dp_train_peeks") using 1:2 with lines lw 3 lc rgb "#D55E00" title "mask off by one: sees the answer"
