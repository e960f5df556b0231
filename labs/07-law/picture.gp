# Four step times and four of the six laws fitted to them: points and curves of `build/fit_tn --plot`.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1080, 420)
laws = "free constant linear logarithm"
colors = "#707070 #E69F00 #CC79A7 #0072B2"
set multiplot layout 1,2 margins 0.095,0.985,0.19,0.87 spacing 0.11
set logscale x 2
set xrange [0.93:8.6]
set xtics (1, 2, 4, 8)
set xlabel "devices N"
set key left top Left reverse samplen 2.2 spacing 1.25
set ylabel "T_N [ms]"
set yrange [0:120]
unset key
set title "step time" font title_font
plot for [i = 1:words(laws)] ARG1 using (stringcolumn(1) eq "curve" && stringcolumn(2) eq word(laws, i) ? $3 : NaN):4 with lines lw 3 lc rgb word(colors, i) title word(laws, i), \
    ARG1 using (stringcolumn(1) eq "point" ? $3 : NaN):4 with points pt 7 ps 1.5 lc rgb "black" title "step times"
set ylabel "N T_N [ms]"
set yrange [80:220]
set key left top
set title "the same, times N: all devices together" font title_font
plot for [i = 1:words(laws)] ARG1 using (stringcolumn(1) eq "curve" && stringcolumn(2) eq word(laws, i) ? $3 : NaN):($3 * $4) with lines lw 3 lc rgb word(colors, i) title word(laws, i), \
    ARG1 using (stringcolumn(1) eq "point" ? $3 : NaN):($3 * $4) with points pt 7 ps 1.5 lc rgb "black" title "step times"
