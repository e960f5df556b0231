# The effect of the size of DDP's gradient buckets on overlap and step time, from the CSV that build/replay writes for
# several sizes:
#     build/replay --node NODE --workload NAME --batch SAMPLES --mode ddp --n 2,4,8 --bucket-cap-mb 0.1,1,5,10,25,50,100 --out FOLDER
#     gnuplot -c plots/overlap_bucket.gp FOLDER/replay.csv FOLDER
# writes FOLDER/overlap_bucket.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/replay.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "build/replay --mode ddp --bucket-cap-mb 0.1,1,5,10,25,50,100 --out build/results, with a node and a workload"
load "plots/read.gp"
csv = "$csv"
file = folder . "/overlap_bucket"

# --- contents of the file -----------------------------------------------------------------------------------------

ns = ""; caps = 0; cap_least = 1e300; cap_most = 0; weak = 0; batch = -1; seen = ","
has(texts, text) = strstrt(" " . texts . " ", " " . text . " ") > 0
note(n, cap) = stringcolumn("mode") ne "DDP" || n == 1 ? 0 : ( \
    ns = has(ns, sprintf("%d", n)) ? ns : ns . sprintf(" %d", n), \
    caps = strstrt(seen, sprintf(",%g,", cap)) ? caps : caps + 1, \
    seen = strstrt(seen, sprintf(",%g,", cap)) ? seen : seen . sprintf("%g,", cap), \
    cap_least = cap < cap_least ? cap : cap_least, cap_most = cap > cap_most ? cap : cap_most, \
    weak = batch > 0 && column("batch") != batch ? 1 : weak, \
    batch = column("batch"), share = column("per_device_batch"), \
    model = stringcolumn("model"), node = stringcolumn("node"), precision = stringcolumn("precision"), lock = column("host_lock_us"), 0)
set table $ignored
plot csv using (note(column("n"), column("bucket_cap_mb"))):(0) with table
unset table
lock_text = lock > 0 ? sprintf(", a host lock of %g us per launch in every mode", lock) : ""
if (caps < 2) {
    printerr "there are not several bucket sizes in " . csv . "; run build/replay with --bucket-cap-mb 0.1,1,5,10,25,50,100"
    exit status 1
}

# The shortest step of each N.
do for [i = 1:words(ns)] {
    least = 1e300
    set table $ignored
    plot csv using (least = stringcolumn("mode") eq "DDP" && column("n") == int(word(ns, i)) && column("step_ms") < least ? column("step_ms") : least):(0) with table
    unset table
    eval sprintf("least_%d = least", i)
}
longer(i) = 100 * (column("step_ms") / value(sprintf("least_%d", i)) - 1)

# --- curves -------------------------------------------------------------------------------------------------------

# A colour and a marker for each N.
n_colors   = "#56B4E9 #0072B2 #009E73 #E69F00 #D55E00 #CC79A7 #4B6FA5 #999999"
n_markers  = "7 5 9 11 13 6 4 8"
cap_of(n)  = stringcolumn("mode") eq "DDP" && column("n") == n ? column("bucket_cap_mb") : NaN
curves(y) = sprintf('plot for [i = 1:words(ns)] csv using (cap_of(int(word(ns, i)))):(%s) with linespoints lw 2.5 pt int(word(n_markers, (i - 1) %% 8 + 1)) ps 1.2 lc rgb word(n_colors, (i - 1) %% 8 + 1) title "N = " . word(ns, i)', y)

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
    set multiplot layout 1,2 margins 0.065,0.985,0.135,0.84 spacing 0.075 \
        title sprintf("DDP's buckets: %s, %d samples per step on %s, %s", model, weak ? share : batch, weak ? "each device" : "every N", precision) font title_font noenhanced
    set label 1 sprintf("replayed on %s (figures from its file)%s; the first bucket is at most 1 MiB", node, lock_text) at screen 0.5,0.905 center noenhanced
    set logscale x 10
    set xlabel "bucket size [MiB]"
    set xrange [cap_least / 1.25:cap_most * 1.25]
    eval "set xtics (" . seen[2:strlen(seen) - 1] . ")"

    set ylabel "overlap [% of communication]"
    set yrange [0:109]
    set key bottom left
    eval curves('100 * column("overlap")')

    unset label 1
    set ylabel "step longer than with the best bucket size [%]"
    set yrange [0:*]
    set key top left
    eval curves('longer(i)')
    unset multiplot
    unset output
    unset logscale
}
print file . ".png"
print file . ".svg"
