# Speed-up and efficiency of DP and DDP against N, from the CSV that `build/replay --out` writes:
#     gnuplot -c plots/speedup.gp build/results/replay.csv build/results
# writes build/results/speedup.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/replay.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "build/replay --node NODE --workload NAME --batch SAMPLES --out build/results"
load "plots/read.gp"
csv = "$csv"
file = folder . "/speedup"

# --- contents of the file -----------------------------------------------------------------------------------------

ticks = ","; n_most = 1; cap = NaN; weak = 0; batch = -1; s_least = 1
# If the file has several bucket sizes, the first is plotted.
is_of(mode) = stringcolumn("mode") eq mode && (mode ne "DDP" || column("bucket_cap_mb") == cap)
note(mode, n) = mode eq "single" ? 0 : ( \
    cap = mode eq "DDP" && cap != cap ? column("bucket_cap_mb") : cap, \
    ticks = strstrt(ticks, sprintf(",%d,", n)) ? ticks : ticks . sprintf("%d,", n), \
    n_most = n > n_most ? n : n_most, \
    s_least = is_of(mode) && column("speedup") < s_least ? column("speedup") : s_least, \
    weak = batch > 0 && column("batch") != batch ? 1 : weak, \
    batch = column("batch"), share = column("per_device_batch"), \
    model = stringcolumn("model"), node = stringcolumn("node"), precision = stringcolumn("precision"), lock = column("host_lock_us"), 0)
set table $ignored
plot csv using (note(stringcolumn("mode"), column("n"))):(0) with table
unset table
lock_text = lock > 0 ? sprintf(", a host lock of %g us per launch in every mode", lock) : ""

# --- curves -------------------------------------------------------------------------------------------------------

mode(i)    = word("DP DDP", i)
n_of(mode) = is_of(mode) ? column("n") : NaN
curves(y)  = sprintf(', for [i = 1:2] csv using (n_of(mode(i))):(%s) with linespoints ls i title mode(i)', y)

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
    set multiplot layout 1,2 margins 0.065,0.985,0.135,0.84 spacing 0.075 \
        title sprintf("%s, %d samples per step on %s, %s", model, weak ? share : batch, weak ? "each device" : "every N", precision) font title_font noenhanced
    set label 1 sprintf("replayed on %s (figures from its file)%s", node, lock_text) at screen 0.5,0.905 center noenhanced
    set logscale x 2
    set xlabel "N, devices"
    set xrange [0.9:n_most * 1.12]
    eval "set xtics (" . ticks[2:strlen(ticks) - 1] . ")"

    set logscale y 2
    set ylabel weak ? "speed-up over one device, N T1 / T_N" : "speed-up over one device, T1 / T_N" noenhanced
    set yrange [(s_least < 1 ? s_least : 1) * 0.85:n_most * 1.2]
    set key top left
    eval 'plot x with lines ls 3 title "ideal, N"' . curves('column("speedup")')

    unset label 1
    unset logscale y
    set ylabel "efficiency, speed-up / N [%]"
    set yrange [0:109]
    set key bottom left
    eval 'plot 100 with lines ls 3 notitle' . curves('100 * column("efficiency")')
    unset multiplot
    unset output
    unset logscale
}
print file . ".png"
print file . ".svg"
