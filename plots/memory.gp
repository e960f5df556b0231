# Memory per device by category, device 0 next to the others, DP next to DDP, from the CSV that `build/replay --out`
# writes:
#     gnuplot -c plots/memory.gp build/results/replay_devices.csv build/results
# writes build/results/memory.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/replay_devices.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "build/replay --node NODE --workload NAME --batch SAMPLES --out build/results"
load "plots/read.gp"
csv = "$csv"
file = folder . "/memory"

# --- contents of the file -----------------------------------------------------------------------------------------

categories = "parameters gradients optimizer activations input gathered_output buckets workspace"
colors     = "#0072B2 #D55E00 #009E73 #56B4E9 #F0C05A #CC79A7 #E8853A #999999"
unit       = 2.0 ** 20 # MiB, or GiB as soon as the bars are known to be long
part(i)    = column(word(categories, i) . "_bytes") / unit
up_to(i)   = i == 0 ? 0 : up_to(i - 1) + part(i)
all        = words(categories)

ns = ""; cap = NaN; y_most = 0; capacity = 0; weak = 0; batch = -1; used = ""
has(texts, text) = strstrt(" " . texts . " ", " " . text . " ") > 0
# If the file has several bucket sizes, the first is plotted.
is_shown(mode)   = mode ne "single" && mode ne "DP by collectives" && (mode ne "DDP" || column("bucket_cap_mb") == cap)
note(mode, n) = mode eq "single" ? 0 : ( \
    cap = mode eq "DDP" && cap != cap ? column("bucket_cap_mb") : cap, \
    ns = has(ns, sprintf("%d", n)) ? ns : ns . sprintf(" %d", n), \
    weak = batch > 0 && column("batch") != batch ? 1 : weak, \
    batch = column("batch"), share = column("per_device_batch"), \
    capacity = column("device_memory_bytes") > 0 ? column("device_memory_bytes") : capacity, \
    y_most = is_shown(mode) && up_to(all) > y_most ? up_to(all) : y_most, \
    model = stringcolumn("model"), node = stringcolumn("node"), precision = stringcolumn("precision"), 0)
set table $ignored
plot csv using (note(stringcolumn("mode"), column("n"))):(0) with table
do for [i = 1:all] {
    most = 0
    plot csv using (most = is_shown(stringcolumn("mode")) && part(i) > most ? part(i) : most):(0) with table
    if (most > 1e-4 * y_most) { used = used . sprintf(" %d", i) }
}
unset table

if (y_most > 10 * 1024) { unit = 2.0 ** 30; y_most = y_most / 1024 }

# A device's capacity, as a line, unless it is far above all bars.
capacity = capacity / unit
is_drawn = capacity > 0 && capacity < 4 * y_most
capacity_text = sprintf("%.4g GiB", capacity * unit / 2.0 ** 30)
if (is_drawn && capacity > y_most) { y_most = capacity }

# --- bars ---------------------------------------------------------------------------------------------------------

# In a group: DP's device 0 and others, then DDP's.
place(n)      = sum [i = 1:words(ns)] (int(word(ns, i)) == n ? i : 0)
x_of(mode)    = place(column("n")) + (mode eq "DP" ? -0.31 : 0.11) + (stringcolumn("device") eq "0" ? 0 : 0.2)
x_shown(mode) = is_shown(mode) ? x_of(mode) : NaN
half_width    = 0.092
bars = ""
do for [k = 1:words(used)] {
    i = int(word(used, k))
    bars = bars . sprintf('%s csv using (x_shown(stringcolumn("mode"))):(0):(x_shown(stringcolumn("mode")) - half_width):(x_shown(stringcolumn("mode")) + half_width):(up_to(%d)):(up_to(%d)) with boxxyerror fs solid 1 border lc rgb "white" fc rgb "%s" title "%s"', \
        bars eq "" ? "" : ",", i - 1, i, word(colors, i), word(categories, i) eq "gathered_output" ? "gathered output" : word(categories, i))
}
tics = ""
do for [i = 1:words(ns)] { tics = tics . sprintf('%s"%s" %d', i > 1 ? ", " : "", word(ns, i), i) }
text_of(mode) = mode . (stringcolumn("device") eq "0" ? " 0" : " 1+") . sprintf(up_to(all) < 100 ? ": %.3g" : ": %.0f", up_to(all))

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1500, 800) } else { eval open_svg(file, 1500, 800) }
    set multiplot layout 1,1 margins 0.075,0.85,0.105,0.87 \
        title sprintf("Memory per device: %s, %d samples per step on %s, %s", model, weak ? share : batch, weak ? "each device" : "every N", precision) font title_font noenhanced
    set label 1 sprintf("computed from the workload, as the two programs allocate it; on each bar its mode, its device (0; 1+: each of the others) and its total%s", capacity > 0 && !is_drawn ? "; a device has " . capacity_text : "") at screen 0.5,0.92 center noenhanced
    set xrange [0.45:words(ns) + 0.55]
    set yrange [0:y_most * 1.2]
    eval "set xtics (" . tics . ") scale 0"
    set ylabel "memory that a device holds [" . (unit > 2.0 ** 20 ? "GiB" : "MiB") . "]"
    set xlabel "N, devices"
    set key at screen 0.995,0.85 right top vertical maxrows 20 invert samplen 1.2 spacing 1.25 noenhanced reverse Left width -1
    if (is_drawn) {
        set arrow 1 from graph 0,first capacity to graph 1,first capacity nohead lw 2.5 dt (8,6) lc rgb "black" front
        set label 2 "a device has " . capacity_text at graph 0.995,first capacity right offset 0,0.6 noenhanced
    }
    eval 'plot ' . bars . ', csv using (x_shown(stringcolumn("mode"))):(up_to(all)):(text_of(stringcolumn("mode"))) with labels rotate by 60 left offset 0.2,0.5 notitle'
    unset multiplot
    unset arrow
    unset label
    unset output
}
print file . ".png"
print file . ".svg"
