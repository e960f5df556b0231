# Table 3: the bytes that the busiest rank sends in an all-reduce, and its time, against the number of ranks:
#     gnuplot -c plots/tables_allreduce.gp build/results/tables.csv build/results
# writes build/results/tables_allreduce.png and .svg. Without table 3 in the file nothing is drawn.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
comma = " "
path = csv; block = "rows"; source = "make tables"
load "plots/read.gp"
rows = "$rows"
if (!any_row("\"3 ")) { exit status 0 }

array modes[5] = ["ring", "parameter server (naive)", "tree", "halving-doubling", "direct"]
color(i) = word("#0072B2 #D55E00 #009E73 #CC79A7 #E69F00", i)
shape(i) = int(word("5 7 9 13 11", i))
is_row(quantity, mode) = stringcolumn("table") eq quantity && stringcolumn("mode") eq mode
pick(quantity, mode, name) = is_row(quantity, mode) ? column(name) : NaN
sent = "3 bytes sent of 1 MiB  busiest rank"
time = "3 time of 1.0 MiB at 10 us and 12 GB/s  us"
file = folder . "/tables_allreduce"

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
    set multiplot layout 1,2 margins 0.065,0.985,0.135,0.84 spacing 0.075 \
        title "An all-reduce of 1 MiB over N ranks: formula and count" font title_font noenhanced
    set label 1 "bytes measured: counted in runs, one thread a rank; times replayed: message by message, " \
        . "12 GB/s and 10 us a link; lines: the textbook" at screen 0.5,0.905 center noenhanced
    set xlabel "N, ranks"
    set xrange [1:17]
    set xtics 2
    set logscale y 2
    set key top left maxrows 5 width -6

    set ylabel "sent by the busiest rank [MiB]"
    set yrange [0.7:64]
    plot for [i = 1:5] rows using (column("n")):(pick(sent, modes[i], "reference") / 2**20) \
             with lines lw 2 lc rgb color(i) notitle, \
         for [i = 1:5] rows using (column("n")):(pick(sent, modes[i], "ours") / 2**20) \
             with points lw 2 pt shape(i) ps 1.1 lc rgb color(i) title modes[i] noenhanced

    unset label 1
    set ylabel "time [us]"
    set yrange [64:16384]
    plot for [i = 1:5] rows using (column("n")):(pick(time, modes[i], "reference")) \
             with lines lw 2 lc rgb color(i) notitle, \
         for [i = 1:5] rows using (column("n")):(pick(time, modes[i], "ours")) \
             with points lw 2 pt shape(i) ps 1.1 lc rgb color(i) title modes[i] noenhanced
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
