# Time lines of GPipe and of 1F1B, 4 stages and 8 micro-batches, as --show-schedule draws them in characters.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1000, 420)
unset key
unset border
unset tics
unset grid
set border 1
set xtics 3 out nomirror
set xlabel "time, in forward passes of a micro-batch"
set lmargin at screen 0.155
set rmargin at screen 0.98
set tmargin at screen 0.88
set bmargin at screen 0.19
forward = "#56B4E9"
backward = "#D55E00"
row(kind, stage) = stage + (kind eq "gpipe" ? 0 : 5)
do for [kind = 0:1] {
    do for [stage = 0:3] {
        set label (1 + 4 * kind + stage) (kind == 0 ? "GPipe, stage " : "1F1B, stage ") . stage at graph -0.012,first stage + 5 * kind right
    }
}
set object 1 rectangle from screen 0.155,screen 0.91 to screen 0.177,screen 0.97 fs solid 1 noborder fc rgb forward
set label 20 "forward pass of a micro-batch" at screen 0.184,screen 0.94 left
set object 2 rectangle from screen 0.55,screen 0.91 to screen 0.572,screen 0.97 fs solid 1 noborder fc rgb backward
set label 21 "backward pass" at screen 0.579,screen 0.94 left
set yrange [8.6:-0.6]
set xrange [0:33]
plot for [pass in "forward backward"] ARG1 using (stringcolumn(5) eq pass ? ($3 + $4) / 2 : NaN):(row(stringcolumn(1), $2)):3:4:(row(stringcolumn(1), $2) - 0.42):(row(stringcolumn(1), $2) + 0.42) \
    with boxxyerror fs solid 1 border lc rgb "white" lw 1 fc rgb (pass eq "forward" ? forward : backward), \
    ARG1 using (($3 + $4) / 2):(row(stringcolumn(1), $2)):6 with labels font ",11"
