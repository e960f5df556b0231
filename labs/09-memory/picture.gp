# What one device holds, by category, at four batch sizes: `build/who_holds --mode single`.
load "plots/style.gp"
set datafile columnheaders
eval open_png(ARG2, 1200, 480)
names = "parameter gradient optimizer activation input workspace"
colors = "#0072B2 #D55E00 #009E73 #56B4E9 #F0C05A #999999"
MiB = 2.0 ** 20
batches = ""
note(batch) = (batches = strstrt(batches . " ", " " . batch . " ") ? batches : batches . " " . batch, 0)
set table $ignored
plot ARG1 using (note(stringcolumn(1))):(0) with table
unset table
# A bar's part lies on those before it, which are the lines before it.
x_of(batch) = sum [k = 1:words(batches)] (word(batches, k) eq batch ? k : 0)
bar = ""; top = 0
raise(batch, bytes) = (top = batch eq bar ? top + bytes / MiB : bytes / MiB, bar = batch, top)
set lmargin at screen 0.085
set rmargin at screen 0.8
set tmargin at screen 0.95
set bmargin at screen 0.1
do for [k = 1:words(batches)] { set label k word(batches, k) . " samples" at first k,graph -0.05 center }
unset xtics
set xrange [0.4:words(batches) + 0.6]
set yrange [0:*]
set ylabel "MiB"
set key at screen 0.825,0.93 left top Left reverse samplen 1.2 spacing 1.35 invert
plot for [k = 1:words(names)] ARG1 using (y = raise(stringcolumn(1), $3), stringcolumn(2) eq word(names, k) ? x_of(stringcolumn(1)) : NaN):(y):(x_of(stringcolumn(1)) - 0.3):(x_of(stringcolumn(1)) + 0.3):(y - $3 / MiB):(y) \
    with boxxyerror fs solid 1 border lc rgb "white" lw 0.7 fc rgb word(colors, k) title word(names, k)
