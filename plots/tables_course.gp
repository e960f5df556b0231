# Tables 1 and 2: the course's step times and speed-ups, and the replayed ones:
#     gnuplot -c plots/tables_course.gp build/results/tables.csv build/results
# writes build/results/tables_course.png and .svg. Without table 1 in the file nothing is drawn.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
comma = " "
path = csv; block = "rows"; source = "make tables"
load "plots/read.gp"
rows = "$rows"
if (!any_row("\"1 step time")) { exit status 0 }
has_list = any_row("\"2 speed-up\"") # false without table 2
unseen = -1 # below the picture, so that gnuplot does not warn of missing points

# DP's two methods and DDP, as rows name them. The course's times are the references of the first and the last.
modes = "'DP by collectives' 'DP by copies' DDP"
is_row(quantity, mode) = stringcolumn("table") eq quantity && stringcolumn("mode") eq mode
pick(quantity, mode, name) = is_row(quantity, mode) ? column(name) : NaN
time = "1 step time  ms"
first = word(modes, 1); copies = word(modes, 2)
t1 = 100.0; t1_ours = 100.0
set table $ignored
plot rows using (is_row(time, first) && column("n") == 1 ? \
    (t1 = column("reference"), t1_ours = column("ours")) : 0):(0) with table
unset table
file = folder . "/tables_course"

set style line 11 lc rgb color_dp  lw 2.5 dt (4,4) pt 9 ps 1.2
set style line 12 lc rgb "black" lw 2 pt 6 ps 1.8
style(i) = i == 1 ? 1 : i == 2 ? 11 : 2

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
    set multiplot layout 1,2 margins 0.065,0.985,0.135,0.84 spacing 0.075 \
        title "The course's step times fit a DP by collectives, not one by copies" font title_font noenhanced
    set label 1 "replayed: ResNet-18, 384 pictures a step, fp16, on node course, three rates fitted; circles: the course's own tables" \
        at screen 0.5,0.905 center noenhanced
    set xlabel "N, devices"
    set logscale x 2
    set xtics (1, 2, 4, 8)
    set xrange [0.9:9]

    set ylabel "step time [ms]"
    set yrange [0:130]
    set key top right maxrows 6 width -2
    plot sample [1:8] "+" using 1:(t1 / $1) with lines ls 3 title "ideal, T1 / N", \
        for [i = 1:3] rows using (column("n")):(pick(time, word(modes, i), "ours")) \
            with linespoints ls style(i) title word(modes, i) . ", replayed", \
        rows using (column("n")):(stringcolumn("mode") ne copies ? pick(time, stringcolumn("mode"), "reference") : NaN) \
            with points ls 12 title "the course, DP and DDP"

    unset label 1
    set ylabel "speed-up over one device"
    set yrange [0:9]
    set key top left maxrows 7 width 0
    plot sample [1:8] "+" using 1:1 with lines ls 3 title "ideal, N", \
        for [i = 1:3] rows using (column("n")):(t1_ours / pick(time, word(modes, i), "ours")) \
            with linespoints ls style(i) title word(modes, i) . ", replayed", \
        rows using (column("n")):(stringcolumn("mode") ne copies ? t1 / pick(time, stringcolumn("mode"), "reference") : NaN) \
            with points ls 12 title "the course's times", \
        rows using (column("n")):(has_list ? pick("2 speed-up", "DDP  the course", "reference") : unseen) \
            with points lc rgb color_ddp lw 2 pt 8 ps 1.6 title has_list ? "DDP, the course's other list" : ""
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
