# A ring of three ranks, step by step: in each cell how many ranks' values that chunk holds; framed: what came in this step.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 330)
unset key
unset border
unset tics
unset grid
set multiplot layout 1,5 margins 0.075,0.985,0.12,0.84 spacing 0.022
set xrange [-0.55:2.55]
set yrange [2.6:-0.6]
shade(terms) = terms == 1 ? 0xE4ECF4 : (terms == 2 ? 0x8DB9DC : 0x0072B2)
do for [step = 0:4] {
    set title step == 0 ? "before" : sprintf("step %d: %s", step, step < 3 ? "add" : "copy") font ",15"
    unset ylabel
    unset label
    do for [i = 0:2] {
        if (step == 0) { set label i + 1 sprintf("rank %d", i) at graph -0.06,first i right }
        set label 11 + i sprintf("chunk %d", i) at i,graph -0.07 center font ",11"
    }
    plot ARG1 using ($1 == step ? $3 : NaN):2:(0.46):(0.44):(shade($4)) with boxxyerror fs solid 1 noborder lc rgb variable, \
        ARG1 using ($1 == step && $5 == (step > 0) ? $3 : NaN):2:(0.44):(0.42) with boxxyerror fs empty lc rgb (step > 0 ? color_dp : "#E4ECF4") lw 4, \
        ARG1 using ($1 == step ? $3 : NaN):2:(sprintf("%d", $4)):($4 == 3 ? 0xFFFFFF : 0x000000) with labels font ",18" tc rgb variable
}
