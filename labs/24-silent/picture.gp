# The losses of the eight programs, each beside those of the right run with the same options.
load "plots/style.gp"
eval open_png(ARG2, 840, 420)
unset key
set multiplot layout 2,4 margins screen 0.075,0.98,0.15,0.86 spacing screen 0.05,0.17
set xrange [0:103]
set xtics 0,50,100 font small_font
set ytics font small_font
set label 20 "right" at screen 0.40,0.96 left tc rgb color_ideal
set label 21 "with a bug" at screen 0.50,0.96 left tc rgb color_dp
set arrow 1 from screen 0.365,0.96 to screen 0.392,0.96 nohead lw 3 lc rgb color_ideal
set arrow 2 from screen 0.465,0.96 to screen 0.492,0.96 nohead lw 2.5 lc rgb color_dp
set label 22 "step" at screen 0.52,0.03 center
set label 23 "loss" at screen 0.015,0.5 center rotate
do for [n = 1:8] {
    set title sprintf("program %d", n) font small_font offset 0,-0.8
    if (n == 3) { set yrange [0:2.6]; set ytics 0,1 } else { set yrange [1:2.8]; set ytics 1,0.5 }
    plot ARG1 every 2 using ($1 == n ? $2 : NaN):3 with lines lw 3 lc rgb color_ideal, \
        ARG1 every 2 using ($1 == n ? $2 : NaN):4 with lines lw 2 lc rgb color_dp
    unset label; unset arrow
}
unset multiplot
